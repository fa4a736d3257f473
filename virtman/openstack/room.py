"""How much room images may take: of a file system, and of a limit.

What an image needs is promised before it is written, so that images which are made at the same time
do not take each other's room. A file that Glance has too takes none: it is a link.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from pathlib import Path

from virtman.errors import VirtmanError

_SECTOR = 512


class NoRoom(VirtmanError):
    """There is no room for the image: make some, or choose another place.

    :ivar lack: how many bytes there are too few, if that is known
    """

    code = "virtman.openstack.image_room"
    lack = 0


class Room:
    """The room of all images of this host.

    :param folder: has a folder for each image
    :param limit: bytes that these may take together; None for what the file system has
    """

    def __init__(self, folder: Path, limit: int | None) -> None:
        self.folder = folder
        self.limit = limit
        self._promised: dict[str, int] = {}
        self._lock = threading.Lock()  # of the promises

    def promise(self, image: str, size: int) -> None:
        """Promise an image that its folder may come to so many bytes.

        :raises NoRoom: if there are not as many; what was promised before stays so
        """
        with self._lock:
            taken = {folder.name: size_of(folder) for folder in self.folder.iterdir()}
            promised = {**self._promised, image: size}
            coming = sum(max(0, most - taken.get(one, 0)) for one, most in promised.items())
            free = shutil.disk_usage(self.folder).free
            left, what = free, f"of the {free} that are free in {self.folder}"
            if self.limit is not None and (below := self.limit - sum(taken.values())) < free:
                left, what = below, f"of the limit of {self.limit}"
            if coming > left:
                refused = NoRoom(
                    f"image {image} needs {size} bytes, and too few {what} are left beside other "
                    "images: delete servers of these, or raise the limit or add space"
                )
                refused.lack = coming - left
                raise refused
            self._promised = promised

    def end(self, image: str) -> None:
        """Take a promise back: the image is made, or will not be."""
        with self._lock:
            self._promised.pop(image, None)

    def taken(self) -> int:
        """Return the bytes that all images take."""
        return sum(map(size_of, self.folder.iterdir()))

    def excess(self) -> int:
        """Return how many these are above the limit."""
        return 0 if self.limit is None else max(0, self.taken() - self.limit)


def size_of(folder: Path) -> int:
    """Return the bytes that a folder's files take; they may go meanwhile."""
    total = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                total += info.st_blocks * _SECTOR if info.st_nlink == 1 else 0
    return total
