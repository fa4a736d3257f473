"""How agents hear of new placements through a message broker.

A cast only says that there is something to fetch, and long-polls say so too: what cannot be
sent is dropped. ``oslo.messaging`` is imported only if a broker is configured.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from oslo_config import cfg

from volt.db.changes import Change

LOG = logging.getLogger(__name__)

EXCHANGE = "virtman"
TOPIC = "virtman-agent"
VERSION = "1.0"
LONGEST_QUEUE = 10_000
PAUSE = 1.0  # seconds without a try after the broker failed

Cast = Callable[[Change], None]


class Notifier:
    """Casts changes from a thread of its own, so that nobody waits for the broker."""

    def __init__(self, cast: Cast, pause: float = PAUSE) -> None:
        self._cast = cast
        self._pause = pause
        self._queue: queue.Queue[Change] = queue.Queue(LONGEST_QUEUE)
        self._failing = False
        self.dropped = 0

    def start(self) -> None:
        """Begin to send."""
        threading.Thread(target=self._send, name="notify", daemon=True).start()

    def tell(self, changes: Sequence[Change]) -> None:
        """Queue these changes; returns at once."""
        for change in changes:
            try:
                self._queue.put_nowait(change)
            except queue.Full:
                self.dropped += 1

    def _send(self) -> None:
        stopped = threading.Event()
        while True:
            change = self._queue.get()
            try:
                self._cast(change)
            except Exception as err:  # whatever it is, the next broker may do better
                self._drop(err)
                stopped.wait(self._pause)
            else:
                if self._failing:
                    LOG.info("Casts go out again, %d were dropped so far", self.dropped)
                self._failing = False

    def _drop(self, err: Exception) -> None:
        """Drop what is queued too: hosts will have fetched it when the broker is back."""
        if not self._failing:
            LOG.warning("Casts are dropped, agents go by their long-polls: %s", err)
        self._failing = True
        self.dropped += 1
        while not self._queue.empty():
            self._queue.get_nowait()
            self.dropped += 1


def connect(url: str, files: Sequence[str]) -> Cast:
    """Return what casts to the broker at the URL; the files may have options of oslo.messaging."""
    import oslo_messaging  # noqa: PLC0415  # heavy, and only some need it

    # oslo.messaging asks the process-wide options for some of its own.
    cfg.CONF([], project="volt", default_config_files=list(files))
    transport = oslo_messaging.get_rpc_transport(cfg.CONF, url=url)
    target = oslo_messaging.Target(exchange=EXCHANGE, topic=TOPIC, version=VERSION)
    client: Any = oslo_messaging.get_rpc_client(transport, target, retry=0)

    def cast(change: Change) -> None:
        client.prepare(server=change.host).cast(
            {},
            "placement_changed",
            host=change.host,
            image=change.image,
            generation=change.generation,
        )

    return cast
