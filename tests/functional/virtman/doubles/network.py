"""What simulated kernels serve each other."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.functional.virtman.doubles.model import SECTOR, Session
from virtman.model.address import Portal


class Node(Protocol):
    """A kernel, as the network sees it."""

    name: str
    sessions: list[Session]


@dataclass
class Lun:
    """What a target serves.

    :ivar read_ahead: bytes, of the device
    """

    storage: str
    device: str
    sectors: int
    read_ahead: int = 128 * 1024


@dataclass
class Target:
    """What a node, or the source, serves; ``kernel`` is None for the source.

    :ivar chap: user and secret that it asks for; None before it was told, which lets nobody in
    :ivar sent: bytes that it has sent
    """

    kernel: Node | None
    ip: str
    port: int
    iqn: str
    luns: dict[int, Lun] = field(default_factory=dict)
    chap: tuple[str, str] | None = None
    sent: int = 0


class Network:
    """All that listens, by (ip, port, iqn).

    :ivar stuck: targets that owe answers to reads, and give none
    :ivar contents: what images hold, where a test gave one another content
    :ivar bytes: of images that are not zeros: an image, and behind it the leaves of its hash tree
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.bytes: dict[str, bytes] = {}
        self.targets: dict[tuple[str, int, str], Target] = {}
        self.silent: set[tuple[str, int]] = set()
        self.stuck: set[tuple[str, int, str]] = set()
        self.contents: dict[str, str] = {}
        self.kernels: list[Node] = []

    def read(self, image: str, offset: int, length: int) -> bytes:
        """Return what an export of an image has behind its header."""
        if image in self.bytes:
            return self.bytes[image][offset : offset + length]
        file = self.layer(image)
        if file is None:
            return bytes(length)
        with open(file, "rb") as opened:
            opened.seek(offset)
            return opened.read(length).ljust(length, b"\0")

    def layer(self, image: str) -> Path | None:
        """Return the file that a node serves as a layer."""
        served = [one.luns[0].device for one in self.targets.values() if 0 in one.luns]
        return next((Path(one) for one in served if one.endswith(f"/{image}.layer")), None)

    def add_source(self, portal: Portal, sizes: list[int], chap: tuple[str, str]) -> None:
        """Serve LUNs of so many bytes."""
        key = (portal.ip, portal.port, portal.iqn)
        luns = {
            lun: Lun(f"source{lun}", "", size // SECTOR)
            for lun, size in enumerate(sizes, start=portal.lun)
        }
        self.targets.setdefault(key, Target(None, *key, {}, chap)).luns.update(luns)

    def sessions_at(self, target: Target) -> list[str]:
        """Names of the nodes that are logged in."""
        key = (target.ip, target.port, target.iqn)
        return [
            f"iqn.node:{one.name}" for one in self.kernels for s in one.sessions if s.key == key
        ]
