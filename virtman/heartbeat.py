"""Tells Volt now and then what this host serves, and hears where it is placed."""

from __future__ import annotations

import logging
import threading

from virtman.agent import Agent
from virtman.errors import VirtmanError

LOG = logging.getLogger(__name__)

_FIRST_INTERVAL = 1.0


class Heartbeat:
    """A thread; Volt says how often."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._unserved = True

    def start(self) -> None:
        """Begin, with taking over what an earlier agent left."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        interval = _FIRST_INTERVAL
        while True:
            try:
                if self._unserved:
                    self._unserved = bool(self.agent.recover())
                interval = self.beat()
            except VirtmanError as err:
                LOG.warning("heartbeat: %s", err)
            except Exception:
                LOG.exception("heartbeat")
            if self._stopped.wait(interval):
                return

    def beat(self) -> float:
        """Send one heartbeat and act on the answer; return seconds until the next."""
        attached = {one.info.name: one for one in self.agent.attachments()}
        news = self.agent.coordinator.heartbeat(
            {name: one.generation for name, one in attached.items()}
        )
        for one in attached.values():
            one.mend()
        for placement in news.placements:
            if placement.image in attached:
                attached[placement.image].apply(placement)
        for image in news.unknown:
            if image in attached:
                attached[image].rejoin()
        return news.interval
