"""Takes over what an earlier agent left, again and again until all of it is served.

Beside the heartbeat, since it may take longer than Volt waits for a host's word: a parent
that does not answer alone costs the attach timeout.

What starts after the agent, a hypervisor with the VMs of before, waits until they have their
devices, but not for ever: one image that cannot be had must not keep all others' VMs down.
"""

from __future__ import annotations

import logging
import threading

from virtman import systemd
from virtman.errors import VirtmanError
from virtman.node.agent import Agent

LOG = logging.getLogger(__name__)

_RETRY = 5.0


class Recovery:
    """A thread; it ends with its work.

    :param patience: seconds after which the agent counts as ready whatever is missing
    """

    def __init__(self, agent: Agent, patience: float) -> None:
        self.agent = agent
        self._hastened = threading.Timer(patience, self._say_ready)
        self._hastened.daemon = True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recovery", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._hastened.start()
        self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more. What waits for a parent just now ends with the process."""
        self._stopped.set()
        self._hastened.cancel()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                missing = self.agent.recover()
                if not missing:
                    self._hastened.cancel()
                    systemd.tell(READY=1, STATUS="all that was here is served again")
                    return
                systemd.tell(STATUS=f"not served yet: {', '.join(missing)}")
            except VirtmanError as err:
                LOG.warning("recovery: %s", err)
            except Exception:
                if self._stopped.is_set():  # the images' threads have ended under it
                    return
                LOG.exception("recovery")
            self._stopped.wait(_RETRY)

    def _say_ready(self) -> None:
        systemd.tell(READY=1)
