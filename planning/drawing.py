"""Curves and boot times as pictures, like Figures 4 to 8 of the VMTorrent paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planning.errors import ExtraMissing
from planning.playback import Playback

_MIB = 1024 * 1024


def draw_curves(curves: Mapping[str, Playback], ideal: Playback, title: str, file: Path) -> None:
    """Draw what is read by when (Figures 5 to 7), and how late that is (Figure 4).

    :param curves: by name
    """
    figure = _figure(12)
    progress, late = figure.subplots(1, 2)
    for name, curve in {"nothing waits": ideal, **curves}.items():
        progress.plot(curve.seconds, [one / _MIB for one in curve.amounts], label=name)
        delays = [
            second - ideal.when(amount)
            for second, amount in zip(curve.seconds, curve.amounts, strict=True)
        ]
        late.plot(curve.seconds, delays, label=name)
    progress.set(title=title, xlabel="s", ylabel="MiB read")
    late.set(title="later than if nothing waits", xlabel="s", ylabel="s")
    _save(figure, (progress, late), file)


def draw_times(times: Mapping[str, Sequence[tuple[int, float]]], title: str, file: Path) -> None:
    """Draw boot times over those without waits, by the number of hosts (Figure 8).

    :param times: by name, numbers of hosts and how many times as long a boot takes
    """
    figure = _figure(7)
    axes = figure.subplots()
    for name, points in times.items():
        axes.plot(*zip(*points, strict=True), "o-", label=name)
    axes.set(title=title, xlabel="hosts", ylabel="boot time over that without waits")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    _save(figure, (axes,), file)


def _figure(width: float) -> Any:
    try:
        # an extra; takes long to load
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as err:
        raise ExtraMissing(
            "matplotlib, which draws, is not installed: install the Python package matplotlib, "
            f'or VirtMan with the extra "plot" ({err})'
        ) from err
    figure = Figure(figsize=(width, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, panels: Sequence[Any], file: Path) -> None:
    for axes in panels:
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(file, format=file.suffix[1:], dpi=150)
