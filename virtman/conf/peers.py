"""Options of what agents ask of each other: to send VMs from one host to another."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "peers"
OPTS = [
    cfg.StrOpt(
        "ip",
        default="",
        help="Address on which this agent takes calls of other hosts' agents, over TLS with "
        "certificates that Volt signs: one of its own that they can reach. Empty: it does not "
        "listen, and VMs can be neither copied nor moved from or to this host.",
    ),
    cfg.PortOpt("port", default=8779, help="TCP port of that address."),
    cfg.FloatOpt(
        "timeout",
        default=90.0,
        min=1.0,
        max=3600.0,
        help="Seconds to wait for an answer of another agent; the first question takes longest, "
        "because the image is attached for it. Higher: slow networks are survived. Lower: a host "
        "that has fallen silent is noticed sooner, also while a VM is paused for its hand-over.",
    ),
    cfg.FloatOpt(
        "patience",
        default=300.0,
        min=0.0,
        help="Seconds for which a VM that is being sent waits for the other host to come back; "
        "after that it stays here. Higher: longer outages are survived. Lower: the space of "
        "snapshots and of an unfinished copy is free sooner.",
    ),
]
