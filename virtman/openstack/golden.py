"""The golden volume of an image: the one that all servers of the image read.

It has the image's name, which says what it is made of, and so which data it has::

    snapshot-<id>       a snapshot of Cinder's
    image-<id>-<GiB>    an image of Glance's, in a volume of that size

Cinder makes it once, in the project of nova's own account, so that no tenant sees it. Every
compute node with servers of the image holds it by an attachment of its own, which leads
nowhere: Cinder counts these, and refuses to delete a volume that has any, whoever asks. So a
node that is down keeps what its servers need, and a crash leaves at worst one hold too many.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from virtman.errors import InvalidName
from virtman.openstack.cinder import Cinder, Volume, VolumeFailed

LOG = logging.getLogger(__name__)

MARK = "virtman_image"
"""Key of a golden volume's metadata; the value is the image's name."""

_MADE_OF = re.compile(
    r"snapshot-(?P<snapshot_id>[0-9a-f-]{36})|image-(?P<imageRef>[0-9a-f-]{36})-[1-9][0-9]{0,4}"
)

_READY = frozenset({"available", "in-use"})
# Another host is just taking hold, or the volume is on its way.
_SOON = frozenset({"creating", "downloading", "reserved", "attaching", "detaching"})
# What Cinder answers to all but one who reserve a volume at the same time, and to much else.
_NOT_NOW = 400
_SHORT, _SHARE = 1.0, 4


def made_of(image: str) -> Mapping[str, str]:
    """Return what the golden volume of an image is made of, in the words of Cinder's API.

    :raises InvalidName: if the name does not say
    """
    found = _MADE_OF.fullmatch(image)
    if found is None:
        raise InvalidName(
            f"image name {image!r} does not say what its golden volume is made of: "
            "it is snapshot-<id> or image-<id>-<GiB>"
        )
    return {key: value for key, value in found.groupdict().items() if value}


def pause_after(waited: float) -> float:
    """Return the seconds until one looks again at what takes long already, as each node does.

    A quarter of what was waited: one that is ten times as slow is asked ten times more, and what is
    there is seen at most a quarter later.
    """
    return max(_SHORT, waited / _SHARE)


def holder_of(host: str) -> str:
    """Return what a host calls itself where Cinder wants a server's id."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"virtman:{host}"))


class Goldens:
    """The golden volumes, as one compute node uses them.

    :param cinder: returns Cinder, as nova's own account
    :param kind: volume type that they have; it must allow ``multiattach``
    :param timeout: seconds within which Cinder makes one
    """

    def __init__(
        self,
        cinder: Callable[[], Cinder],
        kind: str,
        host: str,
        timeout: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.cinder = cinder
        self.kind = kind
        self.holder = holder_of(host)
        self.timeout = timeout
        self.now = now
        self.pause = pause

    def hold(self, image: str, volume: int) -> None:
        """Have a golden volume that nobody can delete; make it if there is none. Repeatable.

        Two nodes that find none at the same time make one each. Once theirs is there, both see
        both and take the older one; the keeper gives the other back.

        :param volume: its GiB
        :raises VolumeFailed: if Cinder cannot make it in time
        """
        cinder, source = self.cinder(), made_of(image)
        usable = _usable(cinder, image)
        if any(self.holder in one.holders for one in usable):
            return
        if usable:
            golden = usable[0]
        else:
            golden = cinder.create(image, volume, self.kind, {MARK: image}, source)
            LOG.info("volume %s becomes the golden one of %s", golden.id, image)
        self._take(cinder, golden, self.holder)

    def share(self, image: str, host: str) -> None:
        """Have another node hold what this node holds: a disk over it goes there. Repeatable.

        :raises VolumeFailed: if there is no golden volume any more
        """
        cinder, other = self.cinder(), holder_of(host)
        usable = _usable(cinder, image)
        if any(other in one.holders for one in usable):
            return
        mine = [one for one in usable if self.holder in one.holders] or usable
        if not mine:
            raise VolumeFailed(f"image {image} has no golden volume that host {host} could hold")
        self._take(cinder, mine[0], other)

    def release(self, image: str) -> None:
        """Let go of a golden volume; that of another node stays. Repeatable."""
        cinder = self.cinder()
        for volume in cinder.named(image):
            if self.holder in volume.holders:
                cinder.detach(volume.holders[self.holder])

    def held(self) -> Sequence[str]:
        """Return the images that this node holds."""
        found = self.cinder().marked(MARK)
        return sorted({one.name for one in found if self.holder in one.holders})

    def _take(self, cinder: Cinder, golden: Volume, holder: str) -> None:
        began = self.now()
        while True:
            if golden.status in _READY:
                golden = next(iter(_usable(cinder, golden.name)), golden)
                if golden.status in _READY and self._attached(cinder, golden, holder):
                    return
            if golden.status not in _READY | _SOON:
                raise VolumeFailed(
                    f"golden volume {golden.id} of {golden.name} is {golden.status}; the log of "
                    "cinder-volume says why, then delete it"
                )
            waited = self.now() - began
            if waited >= self.timeout:
                raise VolumeFailed(
                    f"golden volume {golden.id} of {golden.name} is still {golden.status} after "
                    f"{self.timeout:g} s; raise [virtman] golden_timeout if Cinder needs longer"
                )
            self.pause(min(pause_after(waited), self.timeout - waited))
            golden = cinder.show(golden.id)

    def _attached(self, cinder: Cinder, golden: Volume, holder: str) -> bool:
        """Take hold; False if another node was doing so at that moment."""
        try:
            cinder.hold(golden.id, holder)
        except Exception as err:
            if getattr(err, "code", None) != _NOT_NOW:
                raise
            # Whoever was first may be done by now, which Cinder lists a moment later.
            self.pause(_SHORT)
            found = cinder.show(golden.id)
            if found.status not in _SOON and found.holders == golden.holders:
                raise
            LOG.debug("volume %s: %s; trying again", golden.id, err)
            return False
        return True


def _usable(cinder: Cinder, name: str) -> Sequence[Volume]:
    """Return the golden volumes of a name that can be held, now or soon, the oldest first."""
    return [one for one in cinder.named(name) if one.status in _READY | _SOON]
