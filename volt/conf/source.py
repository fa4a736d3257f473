"""How long a source may take to answer."""

from oslo_config import cfg

GROUP = "source"

OPTIONS = [
    cfg.FloatOpt(
        "timeout",
        default=2.0,
        min=0.1,
        max=30.0,
        help="Seconds within which the source of a new image must accept a TCP connection. "
        "Higher: slower networks are tolerated. Lower: a wrong address is refused sooner.",
    ),
]
