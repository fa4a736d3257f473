"""Hears at once when Volt places this host anew, or wants an image warm here.

Either a request waits at Volt until there is news, or, where there is a message bus, Volt
calls and the request is made then.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence

from virtman.background.heartbeat import Heartbeat
from virtman.coordinator.interface import Wish
from virtman.errors import VirtmanError
from virtman.node.images import Images
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

_WAIT = 30.0
_FIRST_BACKOFF, _LAST_BACKOFF = 0.5, 30.0


class Watch:
    """Asks for news again and again.

    :param warm: is given what Volt wants warm here
    :param called: whether Volt calls (``call``) when there is news
    """

    def __init__(
        self,
        images: Images,
        heartbeat: Heartbeat,
        warm: Callable[[Sequence[Wish]], None],
        *,
        called: bool,
    ) -> None:
        self.images = images
        self.heartbeat = heartbeat
        self.warm = warm
        self.called = called
        self._tag = ""
        self._backoff = 0.0
        self._rounds = Periodic("watch", self._turn, _WAIT)

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """Act on no news any more. A request that waits at Volt ends with the process."""
        self._rounds.stop()

    def call(self) -> None:
        """Ask Volt now."""
        self._rounds.wake()

    def _turn(self) -> float:
        try:
            self.fetch(0 if self.called else _WAIT)
        except VirtmanError as err:
            LOG.log(logging.DEBUG if self._backoff else logging.WARNING, "watching: %s", err)
        except Exception:
            LOG.exception("watching")
        else:
            self._backoff = 0.0
            return _WAIT if self.called else 0.0
        # all hosts lose Volt at once, but should not come back at once, even if they are called
        self._backoff = min(_LAST_BACKOFF, 2 * self._backoff or _FIRST_BACKOFF)
        self._rounds.sleep(self._backoff * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        return 0.0

    def fetch(self, wait: float) -> None:
        """Ask for this host's places, use those that are new, and warm what Volt wants warm.

        :param wait: seconds for which Volt may wait for news
        """
        found = self.images.coordinator.placements(self._tag, wait)
        if found is None or self._rounds.is_stopped:
            return
        self._tag = found.tag
        if not self.images.place(found.placements):
            self.heartbeat.hasten()
        self.warm(found.wishes)
