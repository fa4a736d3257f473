"""From which images on this node another one reads what it has in common with them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from virtman import atomic_file
from virtman.coordinator.interface import Coordinator, ImageInfo
from virtman.errors import BasisInvalid, VirtmanError
from virtman.model import basis, sizes

LOG = logging.getLogger(__name__)


class Lender(Protocol):
    """An image that may lend what it has.

    :ivar info: what Volt knows of it
    """

    info: ImageInfo

    def lend(self) -> bool:
        """Have others read from it; tell whether they can."""


def file(folder: Path, image: str) -> Path:
    """Return the file that tells what an image has in common with others.

    :param folder: survives a reboot
    """
    return folder / f"{image}.basis"


@dataclass(frozen=True)
class _Known:
    """What an image has in common with others, encoded, and which images these must be.

    :ivar roots: root hash of each
    :ivar reach: bytes that each has at least
    """

    content: bytes
    roots: Mapping[str, str]
    reach: Mapping[str, int]


class Lenders:
    """Those of one image.

    :param path: of the file that tells what it has in common with them
    :param find: returns an image that is here by its name; None if it is not
    """

    def __init__(
        self,
        info: ImageInfo,
        path: Path,
        coordinator: Coordinator,
        find: Callable[[str], Lender | None],
    ) -> None:
        self.info = info
        self.path = path
        self.coordinator = coordinator
        self.find = find
        self._found: _Known | None = None
        self._is_useless = False

    @property
    def names(self) -> tuple[str, ...]:
        """All that could lend something."""
        return self.info.based.images if self.info.based else ()

    def willing(self, but: Collection[str] = ()) -> tuple[str, ...]:
        """Return those that lend from now on, for whom it is written down who has what.

        :param but: those that do so already
        """
        wanted = [name for name in self.names if name not in but]
        here = [one for one in map(self.find, wanted) if one is not None]
        if not here or (found := self._known()) is None:
            return ()
        lenders = [one.info.name for one in here if _fits(found, one.info) and one.lend()]
        if lenders:
            try:
                self._write(found.content)
            except OSError as err:
                LOG.warning("image %s is read from its parents: %s", self.info.name, err)
                return ()
        return tuple(lenders)

    def _write(self, content: bytes) -> None:
        with contextlib.suppress(FileNotFoundError):
            if self.path.read_bytes() == content:
                return
        atomic_file.write(self.path, content)

    def _known(self) -> _Known | None:
        """Return what Volt knows of it; None while it does not answer, or if that is no basis."""
        if self._found is None and not self._is_useless:
            try:
                self._found = self._asked()
            except BasisInvalid as err:
                self._is_useless = True
                LOG.error("image %s is read from its parents alone: %s", self.info.name, err)
            except VirtmanError as err:
                LOG.info("image %s is read from its parents: %s", self.info.name, err)
        return self._found

    def _asked(self) -> _Known:
        blocks = sizes.padded(self.info.size) * sizes.SECTOR // sizes.BLOCK
        content = self.coordinator.basis(self.info.name)
        found = basis.decode(content, blocks)
        if self.info.tree is None or found.root != self.info.tree.root:
            raise BasisInvalid("no valid basis: it is of another image")
        return _Known(content, {one.name: one.root for one in found.others}, found.reach())


def _fits(found: _Known, info: ImageInfo) -> bool:
    """Tell whether an image is the one that was meant, and not another of its name."""
    if info.tree is None or info.tree.root != found.roots.get(info.name):
        return False
    return found.reach[info.name] <= sizes.padded(info.size) * sizes.SECTOR
