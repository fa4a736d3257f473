"""How often hosts report."""

from oslo_config import cfg

GROUP = "heartbeat"

OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=2.0,
        min=0.1,
        max=60.0,
        help="Seconds between two heartbeats of a host. Raising it saves requests; lowering it "
        "lets hosts learn sooner of a new parent.",
    ),
]
