"""Options of the agent itself."""

from __future__ import annotations

import socket

from oslo_config import cfg

GROUP = "agent"
OPTS = [
    cfg.StrOpt(
        "host",
        default=socket.gethostname().lower(),
        sample_default="<hostname>",
        help="Name of this host in Volt's trees. It becomes part of iSCSI names: lower-case "
        "letters, digits, dots and dashes. If you change it, this is a new host for Volt.",
    ),
    cfg.StrOpt(
        "rack",
        regex=r"^[A-Za-z0-9._-]{1,48}\Z",
        help="Label that the hosts on one switch share, such as rack7. Volt then keeps most "
        "traffic inside racks. Not set: the rack of this host is unknown.",
    ),
    cfg.FloatOpt(
        "overload",
        default=0.9,
        min=0.05,
        max=1.0,
        help="Share of the speed of the link with [export] ip. A host that sends more than this "
        "at three heartbeats in a row asks Volt for no new children, until it has sent less than "
        "four fifths of it for as long. Lower: load is spread earlier. 1: never asks. Needs the "
        "link's speed, see [export] bandwidth.",
    ),
    cfg.StrOpt(
        "user",
        default="virtman",
        help="Account that the agent runs as. Only its privileged part keeps capabilities.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/virtman",
        help="Folder of the agent's records and exception stores. It must survive a reboot.",
    ),
    cfg.StrOpt(
        "socket",
        default="/run/virtman/agent.sock",
        help="Unix socket of the local API. Its group may create and destroy VM devices.",
    ),
    cfg.IntOpt(
        "threads",
        default=32,
        min=2,
        max=512,
        help="Requests that are served at once. Each create occupies one thread until the image "
        "is there: raise it if a node starts more VMs at once. A thread takes about 8 MB of "
        "address space.",
    ),
    cfg.FloatOpt(
        "ready_timeout",
        default=120.0,
        min=0.0,
        max=3600.0,
        help="Seconds for which services that start after the agent, such as libvirtd, wait "
        "until all earlier VMs have their devices. Lower: a VM whose image cannot be had delays "
        "the others less. Higher: fewer VMs fail to start while storage comes up after the node.",
    ),
]
