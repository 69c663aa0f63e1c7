"""The plots and tables of the performance page, from kept figures: ``python -m benchmarks.plots [FILE …]``.

Drawn by matplotlib (``pip install -e ".[bench]"``); the same figures give the same files. Text is in a grey that can
be read on white and on black, and nothing is drawn behind it.
"""

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import page
from .figures import number
from .kept import FILE, FOLDER, Run, read

TEXT, RAW, OURS, LINE = "#7d8590", "#a8adb3", "#2f81c7", "#7d859055"
SHADES = ("#2f81c7", "#2a9d8f", "#b8722c")
WIDTH = 8.0  # inches
BAR = 0.38

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "vtqueue",
        "font.family": "sans-serif",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "legend.frameon": False,
        "figure.constrained_layout.h_pad": 0.08,
        "figure.constrained_layout.w_pad": 0.08,
    }
    | dict.fromkeys(
        ["text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor", "xtick.color", "ytick.color"], TEXT
    )
)

Pair = tuple[str, float, float]  # what, measured, raw


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=[FILE], metavar="FILE")
    runs = read(parser.parse_args().files)
    for name, draw in PLOTS.items():
        if DRAWN_FROM[name] <= runs.keys():
            save(draw(runs), name)
    page.fill(runs)


def save(figure: Figure, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / f"{name}.svg", transparent=True, metadata={"Date": None, "Creator": None})


def axes_of(height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many axes side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def bars(axes: Axes, pairs: Sequence[Pair], unit: str, names: tuple[str, str]) -> None:
    """Draw pairs of lying bars from zero, the first pair at the top, with their values."""
    for part, (shift, color, name) in enumerate(((-BAR / 2, OURS, names[0]), (BAR / 2, RAW, names[1])), start=1):
        values = [float(pair[part]) for pair in pairs]
        drawn = axes.barh([place + shift for place in range(len(pairs))], values, BAR, color=color, label=name)
        axes.bar_label(drawn, [f"{number(value)} {unit}" for value in values], padding=4, color=TEXT, fontsize=9)
    axes.set_yticks(range(len(pairs)), [pair[0] for pair in pairs])
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.grid(axis="x")
    axes.tick_params(length=0)


def throughput(runs: Mapping[str, Run]) -> Figure:
    """Draw jobs a second: enqueueing in four ways, and draining, each beside plain sqlite3."""
    bars_of = {
        "enqueue\none by one": runs["enqueue"].figure("enqueue, autocommit"),
        "enqueue\nin one atomic": runs["enqueue"].figure("enqueue, all in one atomic"),
        "publish_many": runs["enqueue"].figure("publish_many (raw: executemany)"),
        "enqueue_many": runs["enqueue"].figure("enqueue_many (raw: executemany)"),
        "drain,\none worker": runs["drain"].figure("one worker, --drain (raw: in one transaction)"),
    }
    pairs = [(label, found["measured"], found["raw"]) for label, found in bars_of.items()]
    figure, [axes] = axes_of(4.4)
    bars(axes, pairs, "/s", ("django_vtqueue", "plain sqlite3"))
    axes.set_xlabel("jobs a second")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def latency(runs: Mapping[str, Run]) -> Figure:
    """Draw percentiles: from enqueue to start in an idle worker, and of publishing while eight processes write."""
    figure, [left, right] = axes_of(3.4, 2)
    spread(left, runs["latency"], "one worker", "raw", ("django_vtqueue", "raw: a datagram"))
    left.set_title("enqueue to start, idle worker", fontsize=10)
    spread(right, runs["contention"], "publishing", "publishing: raw", ("django_vtqueue", "raw: plain sqlite3"))
    right.set_title("publishing, 8 processes write", fontsize=10)
    return figure


def spread(axes: Axes, run: Run, ours: str, raw: str, names: tuple[str, str]) -> None:
    limits = run.spread(raw)
    pairs = [(percent, value, limits[percent]) for percent, value in run.spread(ours).items()]
    bars(axes, pairs, "ms", names)
    axes.margins(x=0.3)
    axes.set_xlabel("milliseconds")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2, fontsize=9)  # no bar is there


def flat(runs: Mapping[str, Run]) -> Figure:
    """Draw rates beside very many other rows, relative to those beside none."""
    found: dict[str, dict[str, float]] = {}
    for line in runs["flat"].figures:
        what, _, kind = line["what"].partition(": ")
        found.setdefault(kind, {})[what] = line["measured"] / line["raw"]
    measures = ["drain", "claim and ack", "enqueue"]
    figure, [axes] = axes_of(0.62 * len(found) + 1.2)
    height = 0.8 / len(measures)
    for part, what in enumerate(measures):
        places = [place + (part - 1) * height for place in range(len(found))]
        widths = [ratios.get(what, 0.0) for ratios in found.values()]
        axes.barh(places, widths, height * 0.9, color=SHADES[part], label=what)
    axes.axvline(1, color=TEXT, linewidth=1)
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.tick_params(length=0)
    axes.set_xlabel("rate relative to that without other rows (1: the same)")
    figure.legend(loc="outside upper center", ncols=3)
    return figure


def memory(runs: Mapping[str, Run]) -> Figure:
    """Draw the resident memory of a worker over the jobs that it has run, from zero."""
    figure, [axes] = axes_of(2.8)
    line = runs["memory"].points("one worker")
    jobs, megabytes = zip(*line["points"], strict=True)
    axes.plot(jobs, megabytes, color=OURS, linewidth=2, label="one worker")
    axes.axhline(line["bare"], color=RAW, linewidth=2, label="a bare django.setup()")
    axes.set_ylim(0, max(megabytes) * 1.2)
    axes.set_xlim(0, jobs[-1])
    axes.grid(axis="y")
    axes.set_xlabel("jobs run")
    axes.set_ylabel("MB")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="lower right", ncols=2)
    return figure


PLOTS = {"throughput": throughput, "latency": latency, "flat": flat, "memory": memory}
DRAWN_FROM = {
    "throughput": {"enqueue", "drain"},
    "latency": {"latency", "contention"},
    "flat": {"flat"},
    "memory": {"memory"},
}

if __name__ == "__main__":
    main()
