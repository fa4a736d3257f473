"""How agents are told of new placements beside their long-polls."""

from oslo_config import cfg

GROUP = "notify"

OPTIONS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Message broker in the form of oslo.messaging, such as "
        "rabbit://user:password@host:5672/. Volt casts each change of a placement through it. "
        "Without it, or while the broker is down, agents learn of changes from their long-polls. "
        "It is never logged.",
    ),
]
