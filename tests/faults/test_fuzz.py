"""Any text where stored JSON belongs, and any arguments where a command's belong."""

import contextlib
import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from django_vtqueue.core import encoding, history
from django_vtqueue.core.job import HeldJob
from django_vtqueue.exceptions import DamagedPayload
from django_vtqueue.tasks.results import call_of

from .scale import scaled

COMMANDS = sorted(name for name, app in get_commands().items() if app == "django_vtqueue")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
CALL = st.fixed_dictionaries({}, optional={"args": JSON, "kwargs": JSON, "--drain": JSON})
ODD = st.sampled_from(
    ["[" * 100_000, "9" * 5000, "NaN", "-Infinity", '"\\ud800"', "\ufeff1", "", "\0", '{"args": 1e999}']
)
stored = st.text() | ODD | (JSON | CALL).map(json.dumps)


@given(stored)
def test_decoding(text: str) -> None:
    """A stored text is a value, or damaged; nothing else comes out of it."""
    try:
        value = encoding.decode(text)
    except ValueError:
        return
    with contextlib.suppress(TypeError):
        assert encoding.decode(encoding.encode(value)) == value


@given(stored)
def test_the_call_of_a_row(text: str) -> None:
    """A payload is the arguments of a call, or damaged."""
    try:
        args, kwargs = call_of(HeldJob("0" * 32, "q", "app.t", 0, 0, 1, 1, 1, "w", 1, 0, 0, text, "[]", 0))
    except DamagedPayload:
        return
    assert isinstance(args, list)
    assert isinstance(kwargs, dict)


ENTRIES = st.lists(
    st.dictionaries(st.sampled_from([*history.Entry.__annotations__, "x"]), JSON, max_size=5), max_size=4
)


@given(stored | ENTRIES.map(json.dumps))
@example('[{"number": 1e400}]')
@example('[{"x": NaN}]')
def test_any_history(text: str) -> None:
    """It is read, counted and added to, whatever it is; the new entry is always there."""
    number = history.number(text)
    assert number >= 1
    assert history.crashes(text) >= 0
    assert len(history.workers(history.read(text))) == number - 1
    new = history.entry(number, "w", 1, 2, history.FAILED, None)
    assert new in history.read(history.append(text, new))


def options_of(name: str) -> list[str]:
    """Return the option strings of a command and of its subcommands; not those that every command of Django has."""
    parser = load_command_class("django_vtqueue", name).create_parser("manage.py", name)
    parsers, found = [parser], []
    while parsers:
        for action in parsers.pop()._actions:
            found += action.option_strings
            if isinstance(action.choices, dict):
                found += action.choices
                parsers += action.choices.values()
    return [option for option in found if option not in ("--settings", "--pythonpath", "--reload")]


NUMBERS = ["0", "1", "-1", "3", "1e400", "nan", "9" * 5000]
WORDS = st.sampled_from(["", "default", "a,b", ",", "--", "-", "=", "\ud800", "\0", "ü", "all", *NUMBERS])


def arguments(name: str) -> st.SearchStrategy[list[str]]:
    """Return lists of options and words, more often than not with ``--drain``: a worker that ends by itself."""
    option = st.sampled_from(options_of(name))
    joined = st.builds("{}={}".format, option, WORDS)
    return st.lists(option | WORDS | joined | st.text(max_size=5), max_size=6)


@pytest.mark.django_db
@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_of_commands(name: str) -> None:
    """Any list of arguments does what it says on an empty database, or is refused with words for people."""

    @settings(max_examples=scaled(50, 1000), suppress_health_check=list(HealthCheck))
    @given(arguments(name))
    def run(given_arguments: list[str]) -> None:
        output: Any = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                call_command(name, *given_arguments, stdout=output, stderr=output)
                ending: Any = None
            except (CommandError, SystemExit) as error:
                ending = error
        assert not isinstance(ending, CommandError) or str(ending).strip()
        assert not isinstance(ending, SystemExit) or ending.code in (0, 2)
        assert "Traceback" not in output.getvalue()

    run()
