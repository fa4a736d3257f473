"""What was measured on the test bed: see contributor/bench.rst for how.

Figures of another machine come from ``python -m bench hops`` and ``fanout``.
"""

from __future__ import annotations

ATTACH_S = 1.6
"""Seconds until a node has the devices of an image, at any depth (``bench hops``)."""

HOP_S = 0.27e-3
"""Seconds that a hop adds to a read of 4 KiB, on average (``bench hops``)."""

SENT = 1.18
"""Bytes that the busiest node sends for each byte that a VM reads, of 15 nodes: headers, hashes,
and what is read ahead for nobody (``bench fanout --workload replay``)."""

SOURCE_SENT = 1.14
"""The same of the source."""

BUSY = 0.95
"""Share of the time for which a link that decides is busy (``bench fanout``)."""

KERNEL_BYTES = 6.0e6
"""Memory of a node's kernel for the devices of one image, with two stripes (``bench hops``)."""
