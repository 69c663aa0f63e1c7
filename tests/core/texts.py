"""Texts and values of any kind, as examples for several files."""

from hypothesis import strategies as st

texts = st.text(st.characters())  # lone surrogates and NUL among them
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda children: st.lists(children) | st.dictionaries(texts, children),
)
