"""Feels whether the parents of this host live, gives up those that do not, and tells Volt.

It asks nobody: the kernel knows whose answers are missing. A ping that goes through LIO would not
tell a dead parent from a slow one, for LIO answers it after the reads before it. But what was
sent to a parent, pings among it, its kernel acknowledges at once, however slow its disks are.

So a parent that leaves what was sent to it unacknowledged for a second, while it is sent again
and again, is dead or cut off. Its connection is ended, and its reads go to the next path. So they
do where a parent's kernel lives but answers no reads, as when its disk hangs (``stalls``), if there
is another path.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from virtman.background.stalls import Stalls
from virtman.node.images import Images
from virtman.periodic import Periodic
from virtman.stack.layers.verity import corrupt
from virtman.stack.transport import transport

_INTERVAL = 0.25
_AWAY = 5.0
_SILENCE = 1.0


class Pulse:
    """Two threads, since what Volt is told may wait for Volt, and a dead parent must not."""

    def __init__(self, images: Images, clock: Callable[[], float] = time.monotonic) -> None:
        self.images = images
        self.clock = clock
        self._since: dict[tuple[str, int], float] = {}
        self._stalls = Stalls(_behind)
        self._both = tuple(
            Periodic(name, turn, _INTERVAL, first=_INTERVAL)
            for name, turn in (("feel", self.feel), ("tell", self.tell))
        )

    def start(self) -> None:
        """Begin."""
        for one in self._both:
            one.start()

    def stop(self) -> None:
        """End the threads; one that is asking Volt just now ends with the process."""
        for one in self._both:
            one.stop()

    def feel(self) -> float:
        """Look once at all parents, and give up the dead; return the seconds to the next look."""
        now = self.clock()
        self._since = {peer: self._since.get(peer, now) for peer in transport.unacknowledging()}
        silent = {peer for peer, since in self._since.items() if now - since >= _SILENCE}
        stuck = self._stalls.look(transport.reads(), now)
        for one in self.images.attachments():
            one.give_up(silent, stuck)
        return _INTERVAL

    def tell(self) -> float:
        """Tell Volt what is wrong with parents; return the seconds until it must be told more."""
        attached = self.images.attachments()
        wrong = corrupt(step for one in attached for step in one.verified())
        cut_off = transport.cut_off()
        told = [one.check_parents(wrong, cut_off) for one in attached]
        return _INTERVAL if all(told) else _AWAY


def _behind(disk: str) -> str:
    portal = transport.behind(disk)
    return portal.name if portal else ""
