"""Warms the images that Volt wishes warm on this host, and tells Volt how far it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from virtman.background.boots import Boots
from virtman.coordinator.interface import Warming, Warmup, Wish
from virtman.errors import CoordinatorUnreachable, VirtmanError
from virtman.image.boot import Boot
from virtman.image.prefetch import State

LOG = logging.getLogger(__name__)

_TOLD = 5.0
"""Seconds between two words to Volt."""

_AGAIN = 10.0
"""Seconds between two tries to tell Volt how it ended."""

_STATES = {State.FETCHING: Warming.FETCHING, State.FETCHED: Warming.WARM}


class Warmups:
    """A thread for each of Volt's wishes.

    Volt repeats a wish until it was told how that ended. So an agent that starts anew goes on.
    """

    def __init__(self, boots: Boots) -> None:
        self.boots = boots
        self._stopped = threading.Event()
        # Guards the set of wishes that are being fulfilled.
        self._lock = threading.Lock()
        self._under_way: set[Wish] = set()

    def start(self) -> None:
        """Begin; Volt's word comes later."""

    def stop(self) -> None:
        """Tell Volt no more: what is not done is for the next agent."""
        self._stopped.set()

    def ask(self, wishes: Iterable[Wish]) -> None:
        """Fulfil these wishes, but for those that are under way; returns at once."""
        with self._lock:
            new = set(wishes) - self._under_way
            self._under_way |= new
        for wish in new:
            threading.Thread(
                target=self._fulfil, args=(wish,), name=f"warm-up {wish.image}", daemon=True
            ).start()

    def _fulfil(self, wish: Wish) -> None:
        try:
            self._tell_end(wish, self._warm(wish))
        except VirtmanError as err:
            LOG.warning("image %s: Volt does not wish it warm any more: %s", wish.image, err)
        finally:
            with self._lock:
                self._under_way.discard(wish)

    def _warm(self, wish: Wish) -> Warmup:
        """Warm an image; return how it ended."""
        try:
            boot = self.boots.warm(wish.image, wish.workload)
        except (VirtmanError, OSError) as err:
            return Warmup(Warming.FAILED, detail=str(err))
        while not boot.fetched.wait(_TOLD) and not self._stopped.is_set():
            try:
                self.boots.images.coordinator.tell_warmup(wish, _progress(boot))
            except CoordinatorUnreachable as err:
                LOG.info("image %s: Volt does not hear how far it is warmed: %s", wish.image, err)
        return _progress(boot)

    def _tell_end(self, wish: Wish, ended: Warmup) -> None:
        while not self._stopped.is_set():
            try:
                self.boots.images.coordinator.tell_warmup(wish, ended)
            except CoordinatorUnreachable as err:
                LOG.warning("image %s: Volt does not know yet that it is warm: %s", wish.image, err)
                self._stopped.wait(_AGAIN)
            else:
                LOG.info("image %s: %s, as Volt asked", wish.image, ended.state)
                return


def _progress(boot: Boot) -> Warmup:
    assert boot.prefetch is not None  # it is made before the boot begins
    ahead = boot.first or boot.prefetch.ahead()
    state = _STATES.get(ahead.state, Warming.FAILED)
    return Warmup(state, ahead.wanted, ahead.there, ahead.verdict)
