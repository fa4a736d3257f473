"""The double of ``virtman.stack.page_cache``."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from tests.functional.virtman.doubles import reading
from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import Mapping
from virtman.model.pieces import Part


class PageCache(Double):
    """What the page cache holds of devices that belong to the agent's account."""

    def held(self, device: str, parts: Sequence[Part]) -> list[bytes]:
        pages = self._opened(device).pages
        return [bytes(page in pages for page in reading.pages(*part)) for part in parts]

    def fetch(self, device: str, parts: Sequence[Part]) -> None:
        opened = self._opened(device)
        if opened.hung:
            raise OSError(errno.EIO, device)
        for offset, length in parts:
            self.kernel.ahead.append((opened.name, offset, length))
            reading.fetch(self.kernel, opened, offset, length)

    def read(self, device: str, offset: int, length: int) -> bytes:
        self.fetch(device, [(offset, length)])
        return self.kernel.network.read(device.split("_")[1], offset - reading.HEADER, length)

    def forget(self, device: str, offset: int, length: int) -> None:
        opened = self._opened(device)
        opened.pages -= set(reading.pages(offset, length))
        self.kernel.forgotten.append((opened.name, offset))

    def _opened(self, device: str) -> Mapping:
        found = self.kernel.mapping(device.removeprefix("/dev/mapper/"))
        if found.owner != os.getuid():
            raise PermissionError(errno.EACCES, device)
        return found
