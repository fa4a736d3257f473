"""Options of what this node serves to its children."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "export"
OPTS = [
    cfg.StrOpt(
        "ip",
        help="Address on which this node serves images to other nodes: one of its own, on the "
        "storage network. Required: nothing listens on an address that was not named.",
    ),
    cfg.PortOpt("port", default=3260, help="TCP port of the iSCSI portal."),
]
