"""How often hosts report, and when a silent one is taken for dead."""

from oslo_config import cfg

GROUP = "heartbeat"

OPTIONS = [
    cfg.FloatOpt(
        "interval",
        default=5.0,
        min=0.1,
        max=60.0,
        help="Seconds between two heartbeats of a host. Higher: fewer requests. Lower: allows a "
        "shorter expiry.",
    ),
    cfg.IntOpt(
        "expiry",
        default=15,
        min=2,
        max=3600,
        help="Seconds after which a host that did not report counts as dead: it loses its "
        "places, and its children are placed again. At least twice the interval. Higher: longer "
        "faults of the network are tolerated. Lower: dead hosts are removed sooner.",
    ),
]


def check(conf: cfg.ConfigOpts) -> None:
    """Raise oslo_config.cfg.Error if one lost heartbeat would be the end of a host."""
    if conf.heartbeat.expiry < 2 * conf.heartbeat.interval:
        raise cfg.ConfigFileValueError(
            f"[heartbeat] expiry {conf.heartbeat.expiry} is less than twice the interval "
            f"{conf.heartbeat.interval}: raise it"
        )
