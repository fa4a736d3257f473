"""Boots at once, copies of whole images, shared blocks, and resumed VMs, as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.results import by_rate

MIB = 1024 * 1024
_PAGE = 5.0  # inches a row of runs


def draw(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw all boots, a row for each workload, number of nodes and link rate; SVG or PNG by suffix.

    That is: what each way to boot took, what it sent, and what was there when.
    """
    # takes long to load
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    groups: dict[tuple[str, int, int], list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault((run["workload"], run["nodes"], run["link_bits_s"]), []).append(run)
    figure = Figure(figsize=(15, _PAGE * len(groups)), layout="constrained")
    rows = figure.subplots(len(groups), 3, squeeze=False)
    for row, ((workload, nodes, bits), found) in zip(rows, groups.items(), strict=True):
        link = f"{bits // 1_000_000} Mbit/s" if bits else "no limit"
        _times(row[0], found, f"{workload}, {nodes} nodes, {link}: VMs ready after")
        _bytes(row[1], found)
        _curves(row[2], found)
    FigureCanvasAgg(figure)
    figure.savefig(file, format=file.suffix[1:])


def draw_copies(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw copies of whole images: when nodes had all, and what a VM's reads took beside them.

    And how long layers took, if VMs wrote different amounts.
    """
    # takes long to load
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    clusters = [run for run in runs if "vms" in run]
    panels = 3 if clusters else 2
    figure = Figure(figsize=(5 * panels, _PAGE), layout="constrained")
    left, right, *third = figure.subplots(1, panels)
    copied = [run for run in runs if "copied_s" in run]
    for place, run in enumerate(copied):
        left.plot(run["copied_s"], [place] * len(run["copied_s"]), "o", alpha=0.6)
    left.axvline(copied[0]["limit_s"], color="grey", linestyle="--", label="limit of a link")
    left.set(title=f"{copied[0]['nodes']} nodes: all is there after", xlabel="s")
    left.set_yticks(range(len(copied)), [run["run"] for run in copied])
    left.invert_yaxis()
    left.set_xlim(left=0)
    left.legend()
    beside = by_rate(runs)
    for name in ("p50_ms", "p95_ms"):
        right.plot([run["run"] for run in beside], [run[name] for run in beside], "o-",
                   label=name.removesuffix("_ms"))  # fmt: skip
    right.set(title="reads of 4 KiB of a VM beside copies", ylabel="ms")
    right.tick_params(axis="x", rotation=30)
    right.set_ylim(bottom=0)
    right.legend()
    for axes in third:
        _clusters(axes, clusters)
    FigureCanvasAgg(figure)
    figure.savefig(file, format=file.suffix[1:])


def draw_sharing(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw images that share blocks: what was received, and what a cache holds of them."""
    # takes long to load
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(13, _PAGE), layout="constrained")
    left, right, last = figure.subplots(1, 3)
    versions = [run for run in runs if "delta_bytes" in run]
    for name, label in (("bytes", "all"), ("received_bytes", "received"), ("delta_bytes", "new")):
        left.plot([run["run"] for run in versions], [run[name] / MIB for run in versions], "o",
                  label=label)  # fmt: skip
    left.set(title="a new version where the earlier one is cached", ylabel="MiB")
    (family,) = (run for run in runs if run["run"] == "family")
    names = ("bytes", "cached_bytes", "unique_bytes")
    right.bar(("all", "cached", "unique"), [family[name] / MIB for name in names])
    right.set(title=f"{family['images']} images of one base", ylabel="MiB")
    again = [run for run in runs if run["run"] == "re-reads"]
    for name, label in (("source_bytes", "by the source"), ("sent_bytes", "by all")):
        shares = [run[name] / run["read_bytes"] for run in again]
        last.plot([run["design"] for run in again], shares, "o", label=label)
    last.set(title="sent for each byte re-read", ylim=(0, None))
    last.legend()
    left.set_ylim(bottom=0)
    left.legend()
    FigureCanvasAgg(figure)
    figure.savefig(file, format=file.suffix[1:])


def draw_resumes(runs: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw resumed VMs beside boots, what they received, and how long policies have VMs wait."""
    # takes long to load
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    found = {run["run"]: run for run in runs}
    figure = Figure(figsize=(15, _PAGE), layout="constrained")
    times, sizes, waits = figure.subplots(1, 3)
    at_once, boots, alone = (found[name] for name in ("at once", "boots", "alone"))
    rows = {
        "resumed: runs": at_once["ran_s"],
        "resumed: answers": at_once["answered_s"],
        "booted: ready": boots["ready_s"],
    }
    if unhelped := found.get("at once unhelped"):
        rows["unhelped: runs"] = unhelped["ran_s"]
        rows["unhelped: answers"] = unhelped["answered_s"]
    for place, seconds in enumerate(rows.values()):
        times.plot(seconds, [place] * len(seconds), "o", alpha=0.6)
    times.set(title=f"{at_once['clones']} VMs on {at_once['nodes']} nodes", xlabel="s")
    times.set_yticks(range(len(rows)), list(rows))
    times.invert_yaxis()
    times.set_xlim(left=0)
    bars = {
        "touched": found["touched"]["touched_bytes"][0],
        "first": alone["received_bytes"],
        "second": alone["second_received_bytes"],
        "source, to all": at_once["source_sent_bytes"],
    }
    sizes.bar(list(bars), [one / MIB for one in bars.values()])
    sizes.set(title="a clone touches, and its node receives", ylabel="MiB")
    replayed = [run for run in runs if run["run"] == "policy"]
    for policy in sorted({run["policy"] for run in replayed}):
        of_it = [run for run in replayed if run["policy"] == policy]
        names = [f"{run['workload']}, {run['link_bits_s'] / 1e6:g} Mbit/s" for run in of_it]
        waits.plot(names, [run["waited_s"] for run in of_it], "o", label=policy)
    waits.set(title="a VM waits in all, by policy of prefetch", ylabel="s")
    waits.tick_params(axis="x", rotation=30)
    waits.set_ylim(bottom=0)
    waits.legend()
    FigureCanvasAgg(figure)
    figure.savefig(file, format=file.suffix[1:])


def _clusters(axes: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw how commits and layers' copies take longer with what was written, by number of VMs."""
    for number, vms in enumerate(sorted({run["vms"] for run in runs})):
        found = sorted(
            (run for run in runs if run["vms"] == vms), key=lambda run: run["written_bytes"]
        )
        written = [run["written_bytes"] / MIB for run in found]
        for name, what, line in (
            ("commit_s", "commit", "o-"),
            ("fetch_own_s", "layers elsewhere", "s--"),
        ):
            axes.plot(written, [run[name] for run in found], line, color=f"C{number}",
                      label=f"{what}, {vms} VMs")  # fmt: skip
    axes.set(title="layers, until the last is there", xlabel="MiB that each VM wrote", ylabel="s")
    axes.set_ylim(bottom=0)
    axes.legend()


def _times(axes: Any, runs: Sequence[Mapping[str, Any]], title: str) -> None:
    for place, run in enumerate(runs):
        axes.plot(run["ready_s"], [place] * len(run["ready_s"]), "o", alpha=0.6)
        axes.plot([run["warm_last_s"]], [place], "k|", markersize=18)
    axes.axvline(runs[0]["limit_s"], color="grey", linestyle="--", label="limit")
    axes.plot([], [], "k|", label="last, when all is warm")
    axes.set(title=title, xlabel="s")
    axes.set_yticks(range(len(runs)), [run["peer"] for run in runs])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.legend()


def _bytes(axes: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    for place, run in enumerate(runs):
        sets = run["working_set_bytes"]
        axes.plot([one / sets for one in run["sent_bytes"]], [place] * len(run["sent_bytes"]), "o",
                  alpha=0.6)  # fmt: skip
        axes.plot([run["source_sent_bytes"] / sets], [place], "k|", markersize=18)
    axes.plot([], [], "k|", label="source")
    axes.plot([], [], "o", color="grey", label="a node")
    axes.set(title="sent", xlabel="working sets")
    axes.set_yticks(range(len(runs)), [run["peer"] for run in runs])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.legend()


def _curves(axes: Any, runs: Sequence[Mapping[str, Any]]) -> None:
    for run in runs:
        axes.plot(*zip((0, 0), *((s, done / MIB) for s, done in run["received"]), strict=True),
                  label=run["peer"])  # fmt: skip
    axes.axhline(runs[0]["working_set_bytes"] / MIB, color="grey", linestyle="--")
    axes.set(title="received by a node, on average", xlabel="s", ylabel="MiB")
    axes.legend()
