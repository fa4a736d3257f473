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
        "letters, digits, dots and dashes. Changing it makes this a new host for Volt.",
    ),
    cfg.StrOpt(
        "user",
        default="virtman",
        help="Account that the agent runs as. Only the privileged part keeps capabilities.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/var/lib/virtman",
        help="Folder of the agent's records and exception stores; must survive a reboot.",
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
        help="Requests served at once. Each create waits in one of them until the image is "
        "there: raise it if one node starts more VMs at once, at about 8 MB of address space "
        "each.",
    ),
]
