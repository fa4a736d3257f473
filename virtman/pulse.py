"""Feels whether the parents of this host live, and tells Volt at once when one does not."""

from __future__ import annotations

import logging
import threading

from virtman.agent import Agent

LOG = logging.getLogger(__name__)

_INTERVAL = 0.5


class Pulse:
    """A thread. It asks nobody: the kernel knows whose answers are missing."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, unless it is asking Volt just now: it ends with the process then."""
        self._stopped.set()

    def feel(self) -> None:
        """Look once at all parents."""
        for one in self.agent.attachments():
            one.check_parents()

    def _run(self) -> None:
        while not self._stopped.wait(_INTERVAL):
            try:
                self.feel()
            except Exception:
                LOG.exception("feeling the parents' pulse")
