"""Texts and values of any kind, as examples for several files."""

import json

from hypothesis import strategies as st

texts = st.text(st.characters())  # lone surrogates and NUL among them
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda children: st.lists(children) | st.dictionaries(texts, children),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
calls = st.fixed_dictionaries({}, optional={"args": json_values, "kwargs": json_values, "--drain": json_values})
odd = st.sampled_from(
    ["[" * 100_000, "9" * 5000, "NaN", "-Infinity", '"\\ud800"', "\ufeff1", "", "\0", '{"args": 1e999}']
)
stored = st.text() | odd | (json_values | calls).map(json.dumps)  # what may stand where stored JSON belongs
