"""Warms the images that Volt asks this host to warm, and tells Volt how far it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from virtman.background.boots import Boots
from virtman.coordinator.interface import Warming, Warmup
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
    """A thread for each image that is warmed at Volt's word.

    Volt asks for an image until it was told how that ended. So an agent that starts anew goes on.
    """

    def __init__(self, boots: Boots) -> None:
        self.boots = boots
        self._stopped = threading.Event()
        # Guards the set of images that are warmed.
        self._lock = threading.Lock()
        self._under_way: set[str] = set()

    def start(self) -> None:
        """Begin; Volt's word comes later."""

    def stop(self) -> None:
        """Tell Volt no more: what is not done is for the next agent."""
        self._stopped.set()

    def ask(self, images: Iterable[str]) -> None:
        """Warm these images, if that is not under way; returns at once."""
        with self._lock:
            new = set(images) - self._under_way
            self._under_way |= new
        for image in sorted(new):
            threading.Thread(
                target=self._warm, args=(image,), name=f"warm-up {image}", daemon=True
            ).start()

    def _warm(self, image: str) -> None:
        try:
            self._tell_end(image, self._follow(image))
        except VirtmanError as err:
            LOG.warning("image %s: Volt does not want to know that it was warmed: %s", image, err)
        finally:
            with self._lock:
                self._under_way.discard(image)

    def _follow(self, image: str) -> Warmup:
        """Warm an image; return how it ended."""
        try:
            boot = self.boots.warm(image)
        except (VirtmanError, OSError) as err:
            return Warmup(Warming.FAILED, detail=str(err))
        while not boot.fetched.wait(_TOLD) and not self._stopped.is_set():
            try:
                self.boots.agent.coordinator.tell_warmup(image, _progress(boot))
            except CoordinatorUnreachable as err:
                LOG.info("image %s: Volt does not hear how far it is warmed: %s", image, err)
        return _progress(boot)

    def _tell_end(self, image: str, ended: Warmup) -> None:
        while not self._stopped.is_set():
            try:
                self.boots.agent.coordinator.tell_warmup(image, ended)
            except CoordinatorUnreachable as err:
                LOG.warning("image %s: Volt does not know yet that it is warm: %s", image, err)
                self._stopped.wait(_AGAIN)
            else:
                LOG.info("image %s: %s, as Volt asked", image, ended.state)
                return


def _progress(boot: Boot) -> Warmup:
    assert boot.prefetch is not None  # it is made before the boot begins
    ahead = boot.prefetch.ahead()
    state = _STATES.get(ahead.state, Warming.FAILED)
    return Warmup(state, ahead.wanted, ahead.there, ahead.verdict)
