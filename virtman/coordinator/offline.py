"""What Volt said last of the images of this node, for the time in which it does not answer.

A node that comes up while Volt is down brings its VMs back all the same, and makes further
ones of the images that it has. So what Volt says of an image is kept from the moment at which
the node takes its place until it has given that up.

Volt may have changed its mind meanwhile. It says so with the first heartbeat that reaches it:
an agent that could not tell what it uses reports that it uses nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

from virtman.coordinator.interface import (
    SILENT,
    Coordinator,
    CoordinatorSilent,
    ImageInfo,
    Import,
    Layer,
    News,
    Placements,
    Report,
    Warmup,
    Wish,
)
from virtman.coordinator.memory import Known, Memory
from virtman.errors import CoordinatorUnreachable, ImageRemade, ImageUnknown, VirtmanError
from virtman.model.address import Portal, Proof
from virtman.model.hashtree import HashTree
from virtman.model.placement import Placement

LOG = logging.getLogger(__name__)


class Remembering(Coordinator):
    """Volt; while it does not answer, what is remembered of it.

    Silence costs a time-out. It is waited for once: then what an image needs counts as unanswered
    at once. What is repeated anyway is still asked: by that it shows that Volt is back.
    """

    def __init__(self, volt: Coordinator, memory: Memory) -> None:
        self.volt = volt
        self.memory = memory
        self.url = volt.url
        self.host = volt.host
        self._is_silent = False
        self._infos: dict[str, ImageInfo] = {}

    # What is remembered.

    def image(self, name: str) -> ImageInfo:
        """Return what Volt knows of an image, or knew last."""
        self._infos.pop(name, None)
        try:
            with self._unless_silent():
                info = self.volt.image(name)
        except ImageUnknown:
            self.memory.forget(name)
            raise
        except CoordinatorUnreachable as err:
            known = self.memory.get(name)
            if known is None:
                raise
            LOG.warning("image %s: %s; using what Volt said last", name, err)
            return known.info
        self._infos[name] = info
        return info

    def upper_hashes(self, name: str) -> bytes:
        """Return the levels of an image's hash tree above the leaves."""
        try:
            with self._unless_silent():
                hashes = self.volt.upper_hashes(name)
        except CoordinatorUnreachable:
            known = self.memory.upper(name)
            if known is None:
                raise
            return known
        self.memory.put_upper(name, hashes)
        return hashes

    def join(self, image: str, portal: Portal) -> Placement:
        """Take a place in an image's trees, or the one that this host had last.

        :raises ImageRemade: if Volt, which is back, has another image of this name by now
        """
        try:
            info = self._infos.get(image) or self._confirmed(image)
            with self._unless_silent():
                placement = self.volt.join(image, portal)
        except CoordinatorUnreachable:
            known = self.memory.get(image)
            if known is None:
                raise
            return known.placement
        self.memory.put(Known(info, placement))
        return placement

    def placement(self, image: str) -> Placement:
        """Return this host's present place, or its last one."""
        try:
            with self._unless_silent():
                placement = self.volt.placement(image)
        except CoordinatorUnreachable:
            known = self.memory.get(image)
            if known is None:
                raise
            return known.placement
        self._note([placement])
        return placement

    def profile(self, image: str, workload: str) -> tuple[bytes, str] | None:
        """Return the newest boot profile and its tag, or the one that was fetched last."""
        try:
            with self._unless_silent():
                found = self.volt.profile(image, workload)
        except CoordinatorUnreachable:
            known = self.memory.profile(image, workload)
            if known is None:
                raise
            return known
        self.memory.put_profile(image, workload, found)
        return found

    def remove(self, image: str) -> None:
        """Give the place up; nothing is remembered of the image then."""
        with self._unless_silent():
            self.volt.remove(image)
        self.memory.forget(image)

    # What only Volt can answer.

    def basis(self, name: str) -> bytes:
        """Return what an image has in common with those on which it is based."""
        with self._unless_silent():
            return self.volt.basis(name)

    def ready(self, image: str, generation: int, stripes: Collection[int] | None = None) -> None:
        """Say that the placement of this generation is in use, perhaps only in some stripes."""
        with self._unless_silent():
            self.volt.ready(image, generation, stripes)

    def report(self, image: str, parent: str, reason: str = SILENT) -> str:
        """Say what is wrong with a parent, or standby; return what Volt makes of it."""
        with self._unless_silent():
            return self.volt.report(image, parent, reason)

    def importing(self, name: str) -> Import:
        """Return how far an image is that this host said that it wants, and Volt does not know."""
        with self._unless_silent():
            return self.volt.importing(name)

    def keep_layer(
        self,
        name: str,
        size: int,
        layer: Layer,
        source: Portal,
        proof: Proof,
        hashes: tuple[HashTree, bytes],
    ) -> None:
        """Make a layer known that this host has made, and serves."""
        with self._unless_silent():
            self.volt.keep_layer(name, size, layer, source, proof, hashes)

    def drop_layer(self, name: str, elsewhere: bool = False) -> None:
        """Make a layer unknown that this host has made, or have another one stand for this one."""
        with self._unless_silent():
            self.volt.drop_layer(name, elsewhere)

    def leave(self, image: str) -> None:
        """Have the children placed elsewhere; this host keeps serving meanwhile."""
        with self._unless_silent():
            self.volt.leave(image)

    def needed(self, image: str) -> bool:
        """Tell whether, after ``leave``, somebody may still read from this host."""
        with self._unless_silent():
            return self.volt.needed(image)

    def holds(self) -> Mapping[str, int]:
        """Return for how many disks of this host Volt keeps which images."""
        with self._listening():
            return self.volt.holds()

    def release(self, image: str) -> None:
        """Say that this host has no disk of an image, before the next heartbeat does."""
        with self._unless_silent():
            self.volt.release(image)

    def store_profile(self, image: str, workload: str, content: bytes, tag: str | None) -> None:
        """Store a boot profile in place of the one that has this tag; None: of none."""
        with self._unless_silent():
            self.volt.store_profile(image, workload, content, tag)

    def tell_warmup(self, wish: Wish, warmup: Warmup) -> None:
        """Say how far this host is with an image that Volt asked it to warm."""
        with self._unless_silent():
            self.volt.tell_warmup(wish, warmup)

    # What is asked even while Volt is silent.

    def heartbeat(self, report: Report) -> News:
        """Tell Volt the state of this host and hear what changed."""
        with self._listening():
            news = self.volt.heartbeat(report)
        self._note(news.placements)
        return news

    def placements(self, tag: str, wait: float) -> Placements | None:
        """Return all places of this host; None if none has changed."""
        with self._listening():
            found = self.volt.placements(tag, wait)
        self._note(found.placements if found else ())
        return found

    def certify(self, request: str, listens: tuple[str, int] | None) -> tuple[str, str]:
        """Have a certificate signed; return it and that of the authority."""
        with self._listening():
            return self.volt.certify(request, listens)

    def listener(self, host: str) -> tuple[str, int]:
        """Return address and port at which another host's agent listens."""
        with self._listening():
            return self.volt.listener(host)

    # The rest is inside.

    @contextlib.contextmanager
    def _unless_silent(self) -> Iterator[None]:
        """Ask Volt, if it answered when it was asked last."""
        if self._is_silent:
            raise CoordinatorUnreachable(
                f"Volt at {self.url} did not answer just now; check that it runs"
            )
        with self._listening():
            yield

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Ask Volt, and notice whether it answers; one that is away at once costs no time-out."""
        try:
            yield
        except CoordinatorSilent:
            self._is_silent = True
            raise
        except CoordinatorUnreachable:
            raise
        except VirtmanError:  # a refusal is an answer
            self._is_silent = False
            raise
        self._is_silent = False

    def _confirmed(self, image: str) -> ImageInfo:
        """Return an image that was remembered if Volt still has that one."""
        known, info = self.memory.get(image), self.image(image)
        if image not in self._infos:
            raise CoordinatorUnreachable(f"Volt at {self.url} does not answer")
        if known is not None and info != known.info:
            self.memory.forget(image)
            raise ImageRemade(
                f"image {image} was deleted and made anew while Volt could not be asked; try again"
            )
        return info

    def _note(self, placements: Iterable[Placement]) -> None:
        for one in placements:
            self.memory.place(one)
