"""Figures that are kept: a JSON line each, written by the benchmarks (``--json FILE``) and read by plots and page."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "docs/explanation/performance"
FILE = FOLDER / "figures.jsonl"

PERCENTS = (50, 90, 99, 99.9)

_file: Path | None = None


def keep_in(path: Path | None) -> None:
    """Have ``keep`` append to a file from now on; None: it keeps nothing."""
    global _file
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    _file = path


def keep(kind: str, **values: Any) -> None:
    """Append a line. ``kind``: "run" begins a benchmark, then come "figure", "spread" and "points"."""
    if _file:
        with _file.open("a") as lines:
            benchmark = Path(sys.argv[0]).stem
            print(json.dumps({"benchmark": benchmark, "kind": kind, **values}, ensure_ascii=False), file=lines)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value below which so many percent of all lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def keep_spread(what: str, values: Sequence[float], unit: str) -> None:
    """Keep those percentiles of values that at least one value lies above."""
    known = {
        f"p{percent:g}": percentile(values, percent) for percent in PERCENTS if len(values) * (100 - percent) >= 100
    }
    keep("spread", what=what, unit=unit, count=len(values), percents=known)


@dataclass
class Run:
    """What one run of a benchmark has kept. ``about``: its title, the machine, and the versions."""

    about: dict[str, Any]
    figures: list[dict[str, Any]] = field(default_factory=list)
    others: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def figure(self, what: str) -> dict[str, Any]:
        """Return the figure of this name; raise LookupError if there is none."""
        return self._found(next((found for found in self.figures if found["what"] == what), None), what)

    def spread(self, what: str) -> dict[str, float]:
        """Return the percentiles that were kept under a name, by their names; see ``figure``."""
        percents: dict[str, float] = self._found(self.others.get(("spread", what)), what)["percents"]
        return percents

    def points(self, what: str) -> dict[str, Any]:
        """Return the points that were kept under a name, and what was kept with them; see ``figure``."""
        return self._found(self.others.get(("points", what)), what)

    def _found(self, line: dict[str, Any] | None, what: str) -> dict[str, Any]:
        if line is None:
            title = self.about["title"]
            raise LookupError(f"{title!r} has no {what!r}: its run did not end, or the file is of another version.")
        return line


def read(paths: Iterable[Path]) -> dict[str, Run]:
    """Return the last run of each benchmark in these files, by its name."""
    runs: dict[str, Run] = {}
    for line in (json.loads(text) for path in paths for text in path.read_text().splitlines()):
        name = line["benchmark"]
        if line["kind"] == "run":
            runs[name] = Run(line)
        elif line["kind"] == "figure":
            runs[name].figures.append(line)
        else:
            runs[name].others[line["kind"], line["what"]] = line
    return runs
