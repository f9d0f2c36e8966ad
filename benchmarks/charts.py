"""Charts of the figures as SVG, for light and dark pages.

matplotlib draws with placeholder colours. Each is replaced by a CSS variable that follows the colour scheme of the
reader.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from .bench import Case, label
from .rows.growth import TOPICS
from .tables import shown
from .themes import COLOURS, themed

Cases = dict[str, Case]

BASELINES = ("raw", "baton")


class Bars(NamedTuple):
    title: str
    case: str
    metric: str
    digits: int = 0
    log: bool = False


BARS = [
    Bars("No contention, one thread: CPU µs", "uncontended one-core", "cpu"),
    Bars("50 tasks, 50 keys: CPU µs", "tasks fifty", "cpu"),
    Bars("One waiter: ms to acquisition (log)", "hot lone-waiter", "p50", 2, log=True),
    Bars("8 processes: µs per hand-off (log)", "hot 8-processes-1ms", "handoff_p50", log=True),
    Bars("8 processes: longest wait, turns (log)", "hot 8-processes-1ms", "longest_turns", 1, log=True),
    Bars("500 threads wait: connections", "waiters threads", "connections"),
    Bars("1 000 locks: CPU µs per renewal (log)", "renewals 1000", "cpu_us", 1, log=True),
    Bars("200 threads, no value: loads (log)", "cache stampede-1-process", "loads", log=True),
    Bars("200 threads, no value: p99 ms", "cache stampede-1-process", "p99"),
    Bars("Another job: µs per delay()", "celery another-job", "us"),
    Bars("The same job: µs per delay()", "celery same-job", "us"),
]


def bars(cases: Cases, target: Path) -> None:
    plt = _matplotlib()
    wanted = [one for one in BARS if one.case in cases and cases[one.case].figures]
    rows = math.ceil(len(wanted) / 2)
    figure, axes = plt.subplots(rows, 2, figsize=(10, 2.5 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(wanted) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, wanted, strict=False):
        _bars(axis, panel, cases[panel.case])
    _save(figure, target)


def _bars(axis: Any, panel: Bars, case: Case) -> None:
    figures = {name: case.value(name, panel.metric) for name in case.figures}
    figures = {name: value for name, value in figures.items() if math.isfinite(value)}
    names = sorted(figures, key=lambda name: -figures[name])
    values = [figures[name] for name in names]
    axis.barh([label(name) for name in names], values, color=[_colour(_kind(name)) for name in names], height=0.68)
    if panel.log:
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 3, max(values) * 4)
    else:
        axis.set_xlim(0, max(values) * 1.15)
    for position, value in enumerate(values):
        axis.annotate(
            shown(value, panel.digits, ""), (value, position), (4, 0), textcoords="offset points", va="center", size=9
        )
    axis.set_title(panel.title, loc="left", size=10.5, weight="bold")
    axis.xaxis.set_visible(False)
    axis.tick_params(length=0, labelsize=9)
    axis.spines[:].set_visible(False)


def lines(cases: Cases, target: Path) -> None:
    plt = _matplotlib()
    wanted = [name for name in TOPICS if f"growth {name}" in cases]
    rows = math.ceil(len(wanted) / 2)
    figure, axes = plt.subplots(rows, 2, figsize=(10, 3 * rows), squeeze=False, layout="constrained")
    for axis in axes.flat[len(wanted) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, wanted, strict=False):
        _lines(axis, name, cases[f"growth {name}"])
    _save(figure, target)


def _lines(axis: Any, name: str, case: Case) -> None:
    from matplotlib.ticker import LogLocator

    topic = TOPICS[name]
    peer_colours = iter(("third", "peer"))
    for adapter in case.figures:
        steps = [step for step in topic.steps if math.isfinite(case.value(adapter, str(step)))]
        kind = _kind(adapter)
        if kind == "peer":
            kind = "second" if adapter.startswith("redis-py") or adapter == "one-by-one" else next(peer_colours)
        axis.plot(
            steps,
            [case.value(adapter, str(step)) for step in steps],
            color=_colour(kind),
            label=label(adapter),
            linewidth=2.4 if kind == "ours" else 1.5,
            linestyle="--" if kind == "baseline" else "-",
            marker="o",
            markersize=4 if kind == "ours" else 3,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.set_ylim(low / 1.5, high * 3.5)  # room for the legend; noise looks flat
    axis.set_xticks(topic.steps, [f"{step:,}".replace(",", " ") for step in topic.steps])
    axis.minorticks_off()
    narrow = high / low < 100
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    axis.yaxis.set_major_formatter(lambda value, _: shown(value, 0, ""))
    axis.set_title(topic.caption, loc="left", size=10.5, weight="bold")
    axis.set_xlabel(topic.grows, size=9)
    axis.grid(axis="y", color=_colour("line"), linewidth=0.7)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9, length=3, color=_colour("line"))
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper left")


def _kind(adapter: str) -> str:
    if adapter.startswith("ours"):
        return "ours"
    return "baseline" if adapter.startswith(BASELINES) else "peer"


def _colour(name: str) -> str:
    return COLOURS[name][0]


def _matplotlib() -> Any:
    import matplotlib.pyplot as plt

    plt.switch_backend("svg")
    plt.rcParams.update(
        {
            "svg.fonttype": "none",  # text stays text: it can be searched and coloured
            "svg.hashsalt": "benchmarks",  # makes the file reproducible
            "font.family": "DejaVu Sans",
            "text.color": _colour("ink"),
            "axes.labelcolor": _colour("soft"),
            "axes.edgecolor": _colour("line"),
            "xtick.labelcolor": _colour("soft"),
            "ytick.labelcolor": _colour("ink"),
        }
    )
    return plt


def _save(figure: Any, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.1)
    figure.savefig(target, transparent=True, metadata={"Date": None, "Creator": None})
    _matplotlib().close(figure)
    target.write_text(themed(target.read_text()))
