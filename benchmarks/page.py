"""The tables of the performance pages, made from kept figures: the text between their comments is replaced."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from .figures import number
from .kept import FOLDER, Run

PAGES = [FOLDER.with_name(name) for name in ("performance.md", "performance-tables.md")]
PLACE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(runs: Mapping[str, Run], pages: Sequence[Path] = PAGES) -> None:
    for page in pages:
        page.write_text(filled(page.read_text(), runs))


def filled(text: str, runs: Mapping[str, Run]) -> str:
    """Return the text of a page with the figures of these runs; of benchmarks that were not run it keeps the old."""

    def place(found: re.Match[str]) -> str:
        name = found[2]
        if name == "about":
            return f"{found[1]}\n{about(runs)}\n\n{found[3]}"
        return f"{found[1]}\n{table(runs[name])}\n\n{found[3]}" if name in runs else found[0]

    return PLACE.sub(place, text)


def about(runs: Mapping[str, Run]) -> str:
    """Return where and when it was measured, one sentence for each machine and version there was."""
    places = {
        "{date}: {cores} cores ({cpu}), Python {python}, Django {django}, SQLite {sqlite}.".format(**run.about)
        for run in runs.values()
    }
    short = (
        ["Some of these are short versions (`--short`), for a first look."]
        if any(run.about["short"] for run in runs.values())
        else []
    )
    loads = [run.about["load"] for run in runs.values()]
    return "\n".join([*sorted(places), f"Load when a benchmark began: {min(loads)} to {max(loads)}.", *short])


def table(run: Run) -> str:
    """Return the title of a run and its figures as a table."""
    title = re.sub(r"^\d+\. ", "", run.about["title"])
    rows = [f"| {title} | measured | raw | ratio |", "|---|--:|--:|--:|"]
    for figure in run.figures:
        raw, unit = figure["raw"], figure["unit"]
        limit = "" if raw is None else f"{number(raw)} {unit}".strip()
        ratio = f"{figure['measured'] / raw:.2f}" if raw else ""
        rows.append(
            f"| {figure['what'].strip()} | {number(figure['measured'])} {unit}".strip() + f" | {limit} | {ratio} |"
        )
    return "\n".join(rows)
