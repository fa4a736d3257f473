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
    cfg.IntOpt(
        "bandwidth",
        default=0,
        min=0,
        help="Speed of the link with this address in Mbit/s. 0: what the network card says; set "
        "it where the card does not know (virtual cards) or the way behind it is narrower.",
    ),
]
