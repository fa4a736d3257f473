"""Options of the message bus by which Volt may call hosts."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "notify"
OPTS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Where oslo.messaging finds the message bus that Volt is told to use as well, such "
        "as rabbit://user:password@host:5672/virtman. If it is set, the agent asks Volt for its "
        "places when it is called, instead of keeping a request open at Volt: cheaper for Volt "
        "where there are thousands of hosts. Needs the Python package oslo.messaging.",
    ),
]
