"""Options of the way to the coordinator."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "volt"
OPTS = [
    cfg.StrOpt(
        "url",
        default="http://127.0.0.1:8778",
        help="Where Volt answers.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=10.0,
        min=0.1,
        max=120.0,
        help="Seconds to wait for an answer. Higher: rides out a busy Volt. Lower: errors show "
        "sooner.",
    ),
]
