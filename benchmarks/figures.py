"""How figures are asked for and shown, and kept with ``--json``."""

import os
import platform
import sqlite3
import sys
from argparse import ArgumentParser, Namespace
from datetime import date
from pathlib import Path

import django

from .kept import keep, keep_in, keep_spread, percentile

__all__ = ["arguments", "heading", "keep", "keep_spread", "number", "percentile", "show"]

COLUMNS = "{:<58} {:>14} {:>14} {:>8}  {}"


def arguments(description: str, **numbers: tuple[float, float]) -> Namespace:
    """Parse the command line: an option for each number, whose default is the first value, with ``--short`` the second.

    An option takes whole numbers or fractions, as its defaults are.
    """
    parser = ArgumentParser(description=description)
    parser.add_argument("--short", action="store_true", help="smaller numbers, for a first look")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the figures to this file, a JSON line each")
    for name, (long, short) in numbers.items():
        about = f"default: {long:,}, with --short {short:,}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(long), metavar="N", help=about)
    given = parser.parse_args()
    for name, (long, short) in numbers.items():
        if getattr(given, name) is None:
            setattr(given, name, short if given.short else long)
    keep_in(given.json)
    return given


def heading(title: str) -> None:
    """Print what is measured, on what, under which load, and the heads of the columns."""
    about = {
        "python": platform.python_version(),
        "django": django.get_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    keep("run", title=title, short="--short" in sys.argv, date=str(date.today()), cpu=cpu(), **about)
    print(f"\n{title}")
    print(
        "Python {python}, Django {django}, SQLite {sqlite}, {cores} cores, load {load} at the start\n".format(**about)
    )
    print(COLUMNS.format("", "measured", "raw", "ratio", "to be reached"), flush=True)


def cpu() -> str:
    """Return the name of the processor; "" where it is not known."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    return text.partition("model name")[2].partition("\n")[0].strip(" :\t")


def show(what: str, measured: float, unit: str, raw: float | None = None, goal: str = "") -> None:
    """Print and keep one figure; ``raw``: the limit it is compared with, in the same unit."""
    keep("figure", what=what, measured=measured, unit=unit, raw=raw)
    limit, ratio = ("", "") if raw is None else (f"{number(raw)} {unit}", f"{measured / raw:.2f}" if raw else "")
    print(COLUMNS.format(what, f"{number(measured)} {unit}", limit, ratio, goal).rstrip(), flush=True)


def number(value: float) -> str:
    """Return a number with no more digits than it deserves."""
    if value and abs(value) < 10:
        return f"{value:.2f}"
    return f"{value:,.1f}" if abs(value) < 100 and value != int(value) else f"{value:,.0f}"
