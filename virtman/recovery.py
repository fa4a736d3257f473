"""Takes over what an earlier agent left, again and again until all of it is served.

Beside the heartbeat, since it may take longer than Volt waits for a host's word: a parent
that does not answer alone costs the attach timeout.
"""

from __future__ import annotations

import logging
import threading

from virtman.agent import Agent
from virtman.errors import VirtmanError

LOG = logging.getLogger(__name__)

_RETRY = 5.0


class Recovery:
    """A thread; it ends with its work."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recovery", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more. What waits for a parent just now ends with the process."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self.agent.recover():
                    return
            except VirtmanError as err:
                LOG.warning("recovery: %s", err)
            except Exception:
                if self._stopped.is_set():  # the images' threads have ended under it
                    return
                LOG.exception("recovery")
            self._stopped.wait(_RETRY)
