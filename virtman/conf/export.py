"""Options of what this node serves to its children."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "export"
OPTS = [
    cfg.StrOpt(
        "ip",
        help="Address on which this node serves images to other nodes: one of its own, on the "
        "storage network. Required: the agent listens only on addresses that are configured.",
    ),
    cfg.PortOpt("port", default=3260, help="TCP port of the iSCSI portal."),
    cfg.IntOpt(
        "bandwidth",
        default=0,
        min=0,
        help="Speed of the link with this address in Mbit/s. 0: what the network card reports. "
        "Set it if the card does not know its speed (virtual cards), or if the network behind it "
        "is slower. Volt has nobody who feeds others wait for a host with a slower link.",
    ),
]
