"""Options of the message bus by which Volt may call hosts."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "notify"
OPTS = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Message bus in the form of oslo.messaging, such as "
        "rabbit://user:password@host:5672/virtman; Volt must use the same. With it, the agent "
        "asks Volt for its places when it is called, and keeps no request open at Volt: cheaper "
        "for Volt if there are thousands of hosts. Needs the Python package oslo.messaging.",
    ),
]
