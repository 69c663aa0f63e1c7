"""How figures are asked for and shown."""

import os
import platform
import sqlite3
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import django

COLUMNS = "{:<58} {:>14} {:>14} {:>8}  {}"


def arguments(description: str, **numbers: tuple[float, float]) -> Namespace:
    """Parse the command line: an option for each number, whose default is the first value, with ``--short`` the second.

    An option takes whole numbers or fractions, as its defaults are.
    """
    parser = ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="smaller numbers, for a first look")
    for name, (long, short) in numbers.items():
        about = f"default: {long:,}, with --short {short:,}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(long), metavar="N", help=about)
    given = parser.parse_args()
    for name, (long, short) in numbers.items():
        if getattr(given, name) is None:
            setattr(given, name, short if given.short else long)
    return given


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which so many percent of all lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def heading(title: str) -> None:
    """Print what is measured, on what, under which load, and the heads of the columns."""
    load = os.getloadavg()[0]
    print(f"\n{title}")
    print(
        f"Python {platform.python_version()}, Django {django.get_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{os.cpu_count()} cores, load {load:.1f} at the start\n"
    )
    print(COLUMNS.format("", "measured", "raw", "ratio", "to be reached"), flush=True)


def show(what: str, measured: float, unit: str, raw: float | None = None, goal: str = "") -> None:
    """Print one figure; ``raw``: the limit it is compared with, in the same unit."""
    limit, ratio = ("", "") if raw is None else (f"{number(raw)} {unit}", f"{measured / raw:.2f}" if raw else "")
    print(COLUMNS.format(what, f"{number(measured)} {unit}", limit, ratio, goal).rstrip(), flush=True)


def number(value: float) -> str:
    """Return a number with no more digits than it deserves."""
    if value and abs(value) < 10:
        return f"{value:.2f}"
    return f"{value:,.1f}" if abs(value) < 100 and value != int(value) else f"{value:,.0f}"
