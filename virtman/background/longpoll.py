"""Hears at once when Volt places this host anew; a heartbeat would bring it later.

Either a request waits at Volt until there is news, or, where there is a message bus, Volt
calls and the request is made then.
"""

from __future__ import annotations

import logging
import random
import threading

from virtman.background.heartbeat import Heartbeat
from virtman.errors import VirtmanError
from virtman.node.agent import Agent

LOG = logging.getLogger(__name__)

_WAIT = 30.0
_FIRST_BACKOFF, _LAST_BACKOFF = 0.5, 30.0


class Watch:
    """A thread.

    :param called: whether Volt calls (``call``) when there is news
    """

    def __init__(self, agent: Agent, heartbeat: Heartbeat, *, called: bool) -> None:
        self.agent = agent
        self.heartbeat = heartbeat
        self.called = called
        self._tag = ""
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Act on no news any more. A request that waits at Volt ends with the process."""
        self._stopped.set()
        self.call()

    def call(self) -> None:
        """Ask Volt now."""
        self._news.set()

    def _run(self) -> None:
        backoff = 0.0
        while not self._stopped.is_set():
            try:
                self._news.clear()
                self.fetch(0 if self.called else _WAIT)
                backoff = 0.0
            except VirtmanError as err:
                LOG.log(logging.DEBUG if backoff else logging.WARNING, "watching: %s", err)
            except Exception:
                LOG.exception("watching")
            else:
                if self.called:
                    self._news.wait(_WAIT)
                continue
            # all hosts lose Volt at once, but should not come back at once
            backoff = min(_LAST_BACKOFF, 2 * backoff or _FIRST_BACKOFF)
            self._stopped.wait(backoff * random.uniform(0.5, 1.5))  # noqa: S311 - no secret

    def fetch(self, wait: float) -> None:
        """Ask for this host's places, and use those that are new.

        :param wait: seconds for which Volt may wait for news
        """
        found = self.agent.coordinator.placements(self._tag, wait)
        if found is None or self._stopped.is_set():
            return
        self._tag = found.tag
        if not self.agent.place(found.placements):
            self.heartbeat.hasten()
