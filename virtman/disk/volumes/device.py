"""A block device that somebody else made and connects, such as a Cinder volume."""

from __future__ import annotations

import contextlib
import errno
import logging
import re
from collections.abc import Iterator

from virtman import sysfs
from virtman.disk.volumes.block import Block
from virtman.errors import StoreUnusable
from virtman.model.dirty import CHUNK
from virtman.model.naming import PREFIX
from virtman.model.sizes import SECTOR
from virtman.privileged import device
from virtman.stack.mapped import explained

LOG = logging.getLogger(__name__)

_PATH = re.compile(r"/dev/(?:[\w+:-][\w.+:-]*/)*(?!virtman_)[\w+:-][\w.+:-]*", re.ASCII)


def check(path: str) -> str:
    """Return ``path`` if it can be that of a device.

    :raises StoreUnusable: if not
    """
    if not _PATH.fullmatch(path) or len(path) > 255:
        raise StoreUnusable(f"{path!r} is no path of a block device below /dev that may be used")
    return path


def measured(path: str) -> tuple[str, int]:
    """Return what tells a device from others that may have its path, perhaps nothing; its bytes."""
    return sysfs.identity(path), sysfs.sectors(sysfs.kernel_name(path)) * SECTOR


class Given(Block):
    """The device of one store. After a reboot, another one may have its path.

    :param identity: of the device when the store was made; perhaps nothing
    :param length: its bytes then; 0 if that is not known
    """

    def __init__(self, path: str, identity: str = "", length: int = 0) -> None:
        super().__init__(path)
        self.identity = identity
        self.length = length

    def claim(self, size: int) -> None:
        """Check that the device is long enough and nobody's.

        :raises StoreUnusable: if not; nothing was written then
        """
        with self._refused():
            if sysfs.mapper_name(self.path).startswith(PREFIX):
                raise OSError(errno.EBUSY, "it is one of VirtMan's own devices")
            device.claim(self.path, size)

    def make(self, size: int) -> None:
        """Have it begin as an empty store does.

        The kernel would do that, too, but whenever it finds zeros. So what does not begin so from
        now on is never shown to the kernel.

        :raises StoreUnusable: as ``claim``
        """
        self.claim(size)
        with self._refused():
            device.begin(self.path, CHUNK)

    def lengthen(self, size: int) -> None:
        """See that whoever made the device has made it so long.

        :raises StoreUnusable: if not
        """
        has = self.allocated()
        if has < size:
            raise StoreUnusable(
                f"{self.path} has {has} bytes, and the exception store needs {size}: make the "
                "device longer, then try again"
            )

    def check(self) -> None:
        """Check that it is the device that was made the store, and still holds it.

        :raises StoreUnusable: if not; nothing was written then
        """
        doubt = self._doubt()
        # One on which the store's device lies was looked at before that; it may not answer now.
        if not doubt and not sysfs.is_held(sysfs.kernel_name(self.path)):
            with explained(f"exception store {self.path}"):
                if not device.is_store(self.path):
                    doubt = f"{self.path} does not hold an exception store any more"
        if doubt:
            raise StoreUnusable(
                f"{doubt}: connect the device that the VM had under this path again, or destroy "
                "the VM"
            )

    def copy(self, source: str, length: int) -> None:
        """Never asked for: copies are of the configured backing."""
        raise NotImplementedError

    def remove(self) -> None:
        """Leave the device as it was found; another one that has its path is left alone."""
        doubt = self._doubt()
        if doubt:
            LOG.warning("not erased: %s", doubt)
            return
        with explained(f"exception store {self.path}"):
            device.clear(self.path)

    def _doubt(self) -> str:
        """Say why this cannot be the device that was made the store; empty if it can."""
        try:
            identity, length = measured(self.path)
        except OSError as err:
            return f"{self.path}: {err.strerror or err}"
        # One that can be told from others may have been made longer.
        fits = length == self.length or (self.identity and length > self.length)
        if self.length and not (fits and identity == self.identity):
            return (
                f"{self.path} is another device now ({identity or 'no identity'}, {length} bytes) "
                "than the one that was made an exception store "
                f"({self.identity or 'no identity'}, {self.length} bytes)"
            )
        return ""

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        try:
            yield
        except OSError as err:
            raise StoreUnusable(
                f"{self.path} cannot be an exception store: {err.strerror or err}"
            ) from err
