"""What was measured on the test bed: see contributor/bench.rst for how."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from planning.errors import Invalid, check

SENT = 1.18
"""Bytes that the busiest node sends for each byte that a VM reads, of 15 nodes: headers, hashes,
and what is read ahead for nobody (``bench fanout --workload replay``)."""

SOURCE_SENT = 1.14
"""The same of the source."""

BUSY = 0.95
"""Share of the time for which a link that decides is busy (``bench fanout``)."""

KERNEL_BYTES = 6.0e6
"""Memory of a node's kernel for the devices of one image, with two stripes (``bench hops``)."""


@dataclass(frozen=True)
class Costs:
    """What ``python -m bench hops`` measures of a machine.

    :ivar attach_s: seconds until a node has the devices of an image, at any depth
    :ivar hop_s: seconds that a hop adds to a read of 4 KiB, on average: link, cache and hashes
    """

    attach_s: float
    hop_s: float

    def __post_init__(self) -> None:
        check(self.attach_s >= 0, "attaching cannot take less than 0 seconds")
        check(self.hop_s > 0, "a hop takes some time")


BED = Costs(attach_s=1.6, hop_s=0.27e-3)
"""The machine of contributor/bench.rst."""


def read(file: Path) -> Costs:
    """Return what a file of ``python -m bench hops --json`` says: attaching at the greatest depth.

    :raises Invalid: if it is no such file
    """
    try:
        (run,) = json.loads(file.read_text())["runs"]
        attach = {int(depth): float(seconds) for depth, seconds in run["attach"].items()}
        blocks = {int(depth): float(ms) for depth, ms in run["virtman"]["block_mean_ms"].items()}
        first, last = min(blocks), max(blocks)
        hop_ms = (blocks[last] - blocks[first]) / (last - first)
        return Costs(attach[max(attach)], hop_ms / 1000)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as err:
        raise Invalid(f"{file} is no file of python -m bench hops --json: {err!r}") from err
