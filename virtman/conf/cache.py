"""Options of the node's cache group."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "cache"
OPTS = [
    cfg.ListOpt(
        "devices",
        default=[],
        help="Local block devices, best SSDs, that together hold what was read of all images. "
        "They are formatted when first used; a device that holds anything else is refused. "
        "Larger is better: a cache that is nearly full fetches some blocks again.",
    ),
]
