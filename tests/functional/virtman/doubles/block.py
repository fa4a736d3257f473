"""The double of ``virtman.privileged.block``."""

from __future__ import annotations

import hashlib

from tests.functional.virtman.doubles.devices import Double

_SALT = hashlib.sha256(b"debian").digest()
_ZERO_DIGEST = hashlib.sha256(_SALT + bytes(4096)).digest()


class Blocks(Double):
    """Blocks of images: these are zeros, and their leaves are hashes of them."""

    def read(self, device: str, offset: int, length: int) -> bytes:
        self._fetch(device, offset, length)
        return (_ZERO_DIGEST * (length // 32))[:length]

    def digests(self, device: str, offset: int, length: int, salt: bytes) -> bytes:
        self._fetch(device, offset, length)
        rotten = self.kernel.rotten[device.rsplit("/", 1)[-1]]
        right = hashlib.sha256(salt + bytes(4096)).digest()
        return b"".join(
            bytes(32) if at in rotten else right for at in range(offset, offset + length, 4096)
        )

    def discard(self, device: str, offset: int, length: int) -> None:
        name = device.rsplit("/", 1)[-1]
        self.kernel.member(name)
        self.kernel.rotten[name].discard(offset)

    def forget(self, device: str, offset: int, length: int) -> None:
        self.kernel.number(device)
        self.kernel.forgotten.append((device.rsplit("/", 1)[-1], offset))

    def read_ahead(self, kernel_name: str, size: int) -> None:
        for mapping in self.kernel.mappings.values():
            if mapping.number == kernel_name:
                mapping.read_ahead = size
                return
        self.kernel.member(kernel_name).settings["read_ahead_kb"] = str(size // 1024)

    def merge_nothing(self, kernel_name: str) -> None:
        for loop in self.kernel.loops.values():
            loop.merges &= loop.number != kernel_name
        for session in self.kernel.sessions:
            for disk in session.disks.values():
                disk.merges &= disk.name != kernel_name

    def _fetch(self, device: str, offset: int, length: int) -> None:
        """Have a cache fetch what it lacks."""
        self.kernel.number(device)
        lacking = self.kernel.lacking[device.rsplit("/", 1)[-1]]
        missed = lacking.intersection(range(offset, offset + length, 4096))
        lacking -= missed
        self.kernel.fetched += len(missed)
