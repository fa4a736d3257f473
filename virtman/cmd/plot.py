"""How a boot profile is drawn: which part of the image boots read, and when.

This is Figure 1 of the VMTorrent paper::

    MiB |            -
        |     -  -      -        a dash is a piece; the darker, the more runs read it
        |  -     -
        +------------------ s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from virtman.errors import PlotMissing
from virtman.model.profile import Profile

FORMATS = ("svg", "png")

# an SVG with more dashes than that opens slowly, so it has them as a picture
_DASHES = 10_000


@dataclass(frozen=True)
class Dash:
    """A piece: read between these seconds, at this offset in MiB, in this share of the runs."""

    begin: float
    end: float
    offset: float
    share: float


def dashes(profile: Profile) -> list[Dash]:
    """Return what is drawn, in this order: what more runs read lies on top."""
    width = profile.band_ms / 1000
    found = [
        Dash(
            group.band * width,
            (group.band + 1) * width,
            piece * profile.piece_size / 2**20,
            group.count / profile.runs,
        )
        for group in profile.groups
        for piece in group.pieces
    ]
    return sorted(found, key=lambda dash: dash.share)


def draw(profile: Profile, title: str, file: BinaryIO, kind: str) -> None:
    """Draw a profile.

    :param kind: one of ``FORMATS``
    :raises PlotMissing: if matplotlib is not installed; nothing is written then
    """
    try:
        # an extra; takes long to load
        import matplotlib  # noqa: PLC0415
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
        from matplotlib.collections import LineCollection  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as err:
        raise PlotMissing(
            "matplotlib, which draws, is not installed: install the Python package matplotlib, "
            f'or VirtMan with the extra "plot" ({err})'
        ) from err
    found = dashes(profile)
    lines = LineCollection(
        [((one.begin, one.offset), (one.end, one.offset)) for one in found],
        array=[one.share for one in found],
        cmap="cividis_r",  # dark is much; looks the same to the colour-blind
        clim=(0, 1),
        linewidths=1.5,  # points, as a piece may be less than a pixel high
        capstyle="butt",
        gid="pieces",  # what the SVG calls them
        rasterized=len(found) > _DASHES,
    )
    # pyplot would keep the figure, and look for a screen
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(
        title=title, xlabel="seconds since the boot began", ylabel="offset in the image, MiB"
    )
    axes.add_collection(lines)
    axes.autoscale_view()
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    figure.colorbar(lines, label="share of the runs that read it")
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        figure.savefig(file, format=kind, dpi=150)
