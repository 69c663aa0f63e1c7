"""Any arguments where a command's belong."""

import contextlib
import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .scale import scaled

COMMANDS = sorted(name for name, app in get_commands().items() if app == "django_vtqueue")


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
