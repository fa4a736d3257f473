"""Hears Volt's calls over a message bus, such as that of an OpenStack cloud.

Only an agent that is told to listen loads this: it needs ``oslo.messaging``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_config import cfg

LOG = logging.getLogger(__name__)

_EXCHANGE, _TOPIC, _VERSION = "virtman", "virtman-agent", "1.0"


class Calls:
    """What Volt can call on this host.

    :param url: of the message bus
    :param host: name of this host
    :param react: called when a place of this host has changed; must not wait
    """

    def __init__(
        self, conf: cfg.ConfigOpts, url: str, host: str, react: Callable[[], None]
    ) -> None:
        where = messaging.Target(exchange=_EXCHANGE, topic=_TOPIC, server=host, version=_VERSION)
        self._transport = messaging.get_rpc_transport(conf, url=url)
        self._server = messaging.get_rpc_server(
            self._transport, where, [_Endpoint(react)], executor="threading"
        )

    def start(self) -> None:
        """Begin to listen; a bus that is away is tried again until it is there."""
        self._server.start()

    def stop(self) -> None:
        """Listen no longer."""
        self._server.stop()
        self._server.wait()
        self._transport.cleanup()


class _Endpoint:
    target = messaging.Target(version=_VERSION)

    def __init__(self, react: Callable[[], None]) -> None:
        self.react = react

    def placement_changed(
        self, context: object, *, host: str, image: str, generation: int, **later: Any
    ) -> None:
        LOG.debug("called: image %s, placement %s of host %s", image, generation, host)
        self.react()
