"""The performance pages of docs/explanation/ say what was measured: what benchmarks keep is not typed by hand."""

import json
from pathlib import Path

import pytest

from benchmarks.kept import FILE, Run, read
from benchmarks.page import PAGES, PLACE, filled


def test_the_pages_have_the_kept_figures() -> None:
    """Their tables are those that the kept figures make, and every benchmark that was kept has one."""
    runs = read([FILE])
    text = "".join(page.read_text() for page in PAGES)
    assert filled(text, runs) == text
    assert {name for _, name, _ in PLACE.findall(text)} == {"about", *runs}


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, Run]:
    """Return what two files say of one benchmark, which ran twice in the second of them."""
    about = {
        "benchmark": "one",
        "kind": "run",
        "title": "1. One",
        "load": 0.1,
        "date": "2026-01-01",
        "cpu": "a",
        "short": False,
    }
    about |= {"cores": 2, "python": "3.13", "django": "6.1", "sqlite": "3.40"}
    files = []
    for name, rates in {"a": [1000.0], "b": [2000.0, 3000.0]}.items():
        lines = []
        for rate in rates:
            figure = {
                "benchmark": "one",
                "kind": "figure",
                "what": " rate",
                "measured": rate,
                "unit": "/s",
                "raw": 6000.0,
            }
            spread = {"benchmark": "one", "kind": "spread", "what": "rate", "percents": {"p50": rate}}
            lines += [about, figure, spread]
        files.append(tmp_path / name)
        files[-1].write_text("\n".join(map(json.dumps, lines)))
    return read(files)


def test_the_last_run_counts(runs: dict[str, Run]) -> None:
    """Of several runs of a benchmark, in one file or in several, the last one is shown, and no line of the others."""
    page = "before\n<!-- figures: one -->\nold\n<!-- end -->\n<!-- figures: two -->\nstays\n<!-- end -->\n"
    assert filled(page, runs) == (
        "before\n<!-- figures: one -->\n\n| One | measured | raw | ratio |\n|---|--:|--:|--:|\n"
        "| rate | 3,000 /s | 6,000 /s | 0.50 |\n\n<!-- end -->\n<!-- figures: two -->\nstays\n<!-- end -->\n"
    )
    assert runs["one"].spread("rate") == {"p50": 3000.0}
    with pytest.raises(LookupError, match=r"'1\. One' has no 'speed': its run did not end"):
        runs["one"].figure("speed")
