"""Options of the agent's figures for Prometheus."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "metrics"
OPTS = [
    cfg.HostAddressOpt(
        "ip",
        default="127.0.0.1",
        help="Address at which the agent answers GET /metrics. Whoever reaches it can read the "
        "names of images and how much is read of them, without a token.",
    ),
    cfg.PortOpt(
        "port",
        default=0,
        help="Port for that. 0: the agent does not answer such requests.",
    ),
]
