"""A block device that somebody else made and connects, such as a Cinder volume."""

from __future__ import annotations

import errno
import re

from virtman import sysfs
from virtman.errors import StoreUnusable
from virtman.layers import explained
from virtman.naming import PREFIX
from virtman.privileged import device
from virtman.volumes.block import Block

_PATH = re.compile(r"/dev/(?:[\w+:-][\w.+:-]*/)*(?!virtman_)[\w+:-][\w.+:-]*", re.ASCII)


def check(path: str) -> str:
    """Return ``path`` if it can be that of a device.

    :raises StoreUnusable: if not
    """
    if not _PATH.fullmatch(path) or len(path) > 255:
        raise StoreUnusable(f"{path!r} is no path of a block device below /dev that may be used")
    return path


class Given(Block):
    """The device of one store."""

    def make(self, size: int) -> None:
        """Check that the device is long enough and nobody's.

        :raises StoreUnusable: if not; nothing was written then
        """
        try:
            if sysfs.mapper_name(self.path).startswith(PREFIX):
                raise OSError(errno.EBUSY, "it is one of VirtMan's own devices")
            device.claim(self.path, size)
        except OSError as err:
            raise StoreUnusable(
                f"{self.path} cannot be an exception store: {err.strerror or err}"
            ) from err

    def copy(self, source: str, length: int) -> None:
        """Never asked for: copies are of the configured backing."""
        raise NotImplementedError

    def remove(self) -> None:
        """Leave the device as it was found."""
        with explained(f"exception store {self.path}"):
            device.clear(self.path)
