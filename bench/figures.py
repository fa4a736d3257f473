"""What the figures of the simulator and of the model look like as tables, and as pictures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.results import Results
from bench.table import Table
from planning import drawing
from planning.playback import Playback

STORMS = (
    ("site", "site", "{}"),
    ("design", "design", "{}"),
    ("hosts", "hosts", "{:,}"),
    ("VMs", "vms", "{:,}"),
    ("links", "link_bits_s", "{:,.0f} bit/s"),
    ("died", "deaths", "{}"),
    ("first", "first_s", "{:.1f} s"),
    ("median", "median_s", "{:.1f} s"),
    ("last", "last_s", "{:.1f} s"),
    ("over the limit", "last_over_limit", "{:.2f}"),
    ("source", "source_over_set", "{:.2f}"),
    ("uplink", "uplink_over_set", "{:.2f}"),
)
PREFETCH = (
    ("workload", "workload", "{}"),
    ("line", "bits_s", "{:,.0f} bit/s"),
    ("policy", "policy", "{}"),
    ("fetched, over what is read", "fetch_ratio", "{:.2f}"),
    ("missed", "miss_rate", "{:.1%}"),
    ("waited", "waited_s", "{:.1f} s"),
    ("buffering", "buffering_ratio", "{:.0%}"),
)
AGREEMENT = (
    ("case", "case", "{}"),
    ("ours", "ours", "{:.2f} s"),
    ("reference", "reference", "{:.2f} s"),
    ("difference", "difference", "{:+.1%}"),
)
TIMES = (
    ("design", "design", "{}"),
    ("links", "link_bits_s", "{:,.0f} bit/s"),
    ("hosts", "hosts", "{:,}"),
    ("a boot takes", "boot_s", "{:.1f} s"),
    ("over one without waits", "over_ideal", "{:.2f}"),
)
CURVES = (
    ("design", "design", "{}"),
    ("links", "link_bits_s", "{:,.0f} bit/s"),
    ("hosts", "hosts", "{:,}"),
    ("read", "total", "{:,.0f} bytes"),
    ("after", "end_s", "{:.1f} s"),
)

READS = (
    ("cache, over the image", "cache", "{:g}"),
    ("design", "design", "{}"),
    ("read at home", "at_home", "{:.1%}"),
    ("source, for each read", "source", "{:.3f}"),
    ("all links", "links", "{:.2f}"),
    ("busiest host", "busiest", "{:.2f}"),
)
LOADS = (
    ("cv of other traffic", "cv", "{:g}"),
    ("parts", "weights", "{}"),
    ("cv with the ring", "cv_after", "{:.2f}"),
    ("busiest", "busiest", "{:.2f}"),
    ("moved", "moved", "{:.0%}"),
)


def draw_times(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw boot times by the number of hosts."""
    (run,) = runs
    lines: dict[str, list[tuple[int, float]]] = {}
    for one in run["times"]:
        lines.setdefault(_name(one), []).append((one["hosts"], one["over_ideal"]))
    drawing.draw_times(lines, "boot time", file)


def draw_curves(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw what a VM has read by when."""
    (run,) = runs
    curves = {_name(one): _playback(one) for one in run["curves"]}
    drawing.draw_curves(curves, _playback(run["ideal"]), "boots at once", file)


def _storms(results: Results) -> list[Table]:
    """Return a table with a line for each run; a single storm has no site."""
    runs = [
        {"site": "", **run, "last_over_limit": run["last_s"] / run["limit_s"]}
        for run in results.runs
    ]
    return [_lines(STORMS, runs)]


def _prefetch(results: Results) -> list[Table]:
    """Return a table with a line for each workload, line and policy."""
    return [_lines(PREFETCH, [{**run, "bits_s": run["rate"] * 8} for run in results.runs])]


def _agree(results: Results) -> list[Table]:
    """Return a table with a line for each case."""
    (run,) = results.runs
    return [_lines(AGREEMENT, run["agreement"])]


def _times(results: Results) -> list[Table]:
    """Return a table with a line for each link rate, design and number of hosts."""
    (run,) = results.runs
    return [_lines(TIMES, run["times"])]


def _curves(results: Results) -> list[Table]:
    """Return a table with a line for each curve."""
    (run,) = results.runs
    ends = [
        {**one, "total": one["bytes"][-1], "end_s": one["seconds"][-1]} for one in run["curves"]
    ]
    return [_lines(CURVES, ends)]


def _ring(results: Results) -> list[Table]:
    """Return what reads cost, and how evenly hosts are loaded."""
    (run,) = results.runs
    return [_lines(READS, run["reads"]), _lines(LOADS, run["loads"])]


def _size(results: Results) -> list[Table]:
    """Return what to choose and to buy, and what boots wait for."""
    (run,) = results.runs
    verdict = "in time" if run["reached"] else "too late"
    answers = [
        [one["what"], f"{_amount(one['value'])} {one['unit']}".strip(), one["reason"]]
        for one in run["answers"]
    ]
    limits = [[one["what"], f"{one['seconds']:.1f} s", one["reason"]] for one in run["limits"]]
    last = ["the last VM is ready", f"{run['last_s']:.1f} s", verdict]
    return [
        Table(["to choose or to have", "", "why"], answers),
        Table(["limited by", "", "why"], [last, *limits]),
    ]


OF: Mapping[str, Callable[[Results], list[Table]]] = {
    "agree": _agree,
    "predict": _storms,
    "run": _storms,
    "prefetch": _prefetch,
    "times": _times,
    "curves": _curves,
    "size": _size,
    "ring": _ring,
}
"""By the command that writes the file."""


def _lines(columns: Sequence[tuple[str, str, str]], found: Iterable[Mapping[str, Any]]) -> Table:
    lines = [[form.format(one[name]) for _, name, form in columns] for one in found]
    return Table([title for title, _, _ in columns], lines)


def _amount(value: float | None) -> str:
    return "none" if value is None else f"{value:,.6g}"


def _name(one: Mapping[str, Any]) -> str:
    return f"{one['design']}, {one['link_bits_s'] / 1e6:g} Mbit/s"


def _playback(points: Mapping[str, Any]) -> Playback:
    return Playback(tuple(points["seconds"]), tuple(points["bytes"]))
