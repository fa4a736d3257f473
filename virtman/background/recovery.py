"""Takes over what an earlier agent left, again and again until all of it is served.

Beside the heartbeat, since it may take longer than Volt waits for a host's word: a parent
that does not answer alone costs the attach timeout.

What starts after the agent, a hypervisor with the VMs of before, waits until they have their
devices, but not for ever: one image that cannot be had must not keep all others' VMs down.
"""

from __future__ import annotations

import threading

from virtman import systemd
from virtman.node.agent import Agent
from virtman.periodic import Periodic

_RETRY = 5.0


class Recovery:
    """Tries again and again; it ends with its work.

    :param patience: seconds after which the agent counts as ready whatever is missing
    """

    def __init__(self, agent: Agent, patience: float) -> None:
        self.agent = agent
        self._hastened = threading.Timer(patience, self._say_ready)
        self._hastened.daemon = True
        self._rounds = Periodic("recovery", self._turn, _RETRY)

    def start(self) -> None:
        """Begin."""
        self._hastened.start()
        self._rounds.start()

    def stop(self) -> None:
        """Begin nothing any more. What waits for a parent just now ends with the process."""
        self._rounds.stop()
        self._hastened.cancel()

    def _turn(self) -> None:
        missing = self.agent.recover()
        if missing:
            systemd.tell(STATUS=f"not served yet: {', '.join(missing)}")
            return
        self.stop()
        systemd.tell(READY=1, STATUS="all that was here is served again")

    def _say_ready(self) -> None:
        systemd.tell(READY=1)
