"""The double of ``virtman.privileged.chunks``."""

from __future__ import annotations

import errno

from tests.functional.virtman.doubles import stores
from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import CHUNK
from virtman.privileged import exchange
from virtman.privileged.chunks import Runs


class Chunks(Double):
    """Chunks of what VMs wrote: each has the text that was written to it, then zeros."""

    def written(self, store: str, chunk: int, count: int) -> bytes:
        _, held = stores.exceptions(self.kernel, self.kernel.number(store))
        found = bytearray(-(-count // 8))
        for number in held:
            found[number // 8] |= 1 << number % 8
        return bytes(found)

    def read_shared(self, device: str, runs: Runs, slot: int) -> None:
        name = self.kernel.named(self.kernel.number(device))
        if self.kernel.mapping(name).suspended:
            raise BlockingIOError(errno.EAGAIN, f"{name} holds its I/O back")
        content = b"".join(
            stores.read(self.kernel, name, at // CHUNK)
            .encode()
            .ljust(CHUNK, b"\0")[: offset + length - at]
            for offset, length in runs
            for at in range(offset, offset + length, CHUNK)
        )
        with exchange.view(slot) as memory:
            memory[: len(content)] = content

    def write_shared(self, device: str, runs: Runs, slot: int) -> None:
        name, start = self.kernel.named(self.kernel.number(device)), 0
        with exchange.view(slot) as memory:
            data = bytes(memory[: sum(length for _, length in runs)])
        if name in self.kernel.rotten:
            self.kernel.rotten[name] -= {offset for offset, _ in runs if not any(data)}
            return
        for offset, length in runs:
            for at in range(offset, offset + length, CHUNK):
                text = data[start : start + CHUNK].rstrip(b"\0").decode()
                stores.write(self.kernel, name, at // CHUNK, text)
                start += CHUNK

    def flush(self, device: str) -> None:
        if device.startswith("/dev/"):
            self.kernel.number(device)
        self.kernel.flushed.append(device)
