"""The double of ``virtman.privileged.dm``."""

from __future__ import annotations

import errno

from tests.functional.virtman.doubles import stores, tables
from tests.functional.virtman.doubles.chunks import Chunks
from tests.functional.virtman.doubles.devices import Devices, Double
from tests.functional.virtman.doubles.model import NUMBER, Mapping
from virtman.privileged.dm import PATIENCE
from virtman.privileged.libdm import Table

# How the drivers say that of 100 reads 60 were hits; flashcache, that it let 10 pass by.
_CACHE_STATUS = {
    "cache": "8 11/2048 128 10/2048 60 40 0 0 0 10 0 2 writethrough smq 0 rw - ",
    "flashcache": "stats: \n\treads(100), writes(0)\n\tread hits(60), read hit percent(60)\n"
    "\tdisk reads(40), disk writes(0) ssd reads(60) ssd writes(30)\n"
    "\tuncached reads(10), uncached writes(0), uncached IO requeue(0)\n",
}


class DeviceMapper(Double):
    """Devices with tables."""

    def __init__(self, kernel: Devices, chunks: Chunks) -> None:
        super().__init__(kernel)
        self._chunks = chunks

    def create(self, name: str, table: Table, read_only: bool, owner: int = 0) -> None:
        if name in self.kernel.mappings:
            raise OSError(errno.EBUSY, f"{name} is there")
        tables.check(self.kernel, table, read_only)
        number = f"253:{next(self.kernel.minors)}"
        self.kernel.mappings[name] = Mapping(
            name, number, [tables.reworded(row) for row in table], read_only, owner=owner
        )
        stores.begin(self.kernel, table)

    def reload(
        self,
        name: str,
        table: Table,
        read_only: bool,
        flush: bool,
        freeze: bool,
        settle: str = "",
    ) -> None:
        device = self.kernel.mapping(name)
        tables.check(self.kernel, table, read_only, device.number)
        if flush and not device.suspended and device.hung:
            raise OSError(errno.EINTR, f"device mapper, {name}: Interrupted system call")
        tables.check_led(self.kernel, device, table, flush)
        if settle:
            before, device.suspended = device.suspended, True
            self._chunks.flush(settle)
            device.suspended = before
        kinds = {row[2] for row in (*device.table, *table)}
        if "verity" in kinds and len(kinds) > 1:
            raise OSError(errno.EINVAL, "a verity device stays one")
        device.table, device.read_only = [tables.reworded(row) for row in table], read_only
        device.suspended = device.corrupt = False
        device.failed.clear()
        device.reloads += 1
        self.kernel.fill(device)
        self.kernel.settle()

    def mend_node(self, name: str, owner: int = 0) -> None:
        device = self.kernel.mapping(name)
        device.has_node, device.owner = True, owner

    def is_open(self, name: str) -> bool:
        device = self.kernel.mapping(name)
        return self.kernel.is_used(device.number, f"/dev/mapper/{name}")

    def revert(self, name: str) -> None:
        self.kernel.mapping(name).suspended = False

    def suspend(self, name: str, flush: bool, freeze: bool, patience: float = PATIENCE) -> None:
        device = self.kernel.mapping(name)
        if flush and not device.suspended and device.hung:
            raise OSError(errno.EINTR, f"device mapper, {name}: Interrupted system call")
        device.suspended = True

    def hold(self, name: str) -> bool:
        device = self.kernel.mapping(name)
        begins = not device.holding
        device.holding, device.suspended = device.hung, not device.hung
        return begins

    def holding(self) -> list[str]:
        return [one.name for one in self.kernel.mappings.values() if one.holding]

    def resume(self, name: str) -> None:
        self.kernel.mapping(name).suspended = False

    def remove(self, name: str) -> None:
        device = self.kernel.mapping(name)
        if self.kernel.is_used(device.number, f"/dev/mapper/{name}"):
            raise OSError(errno.EBUSY, f"{name} is open")
        del self.kernel.mappings[name]
        self.kernel.settle()

    def message(self, name: str, words: str) -> None:
        device = self.kernel.mapping(name)
        if words in ("fail_if_no_path", "queue_if_no_path"):
            device.table = [tables.with_queueing(row, words[0] == "q") for row in device.table]
        if words.startswith("reinstate_path "):
            device.failed.discard(words.split()[1])

    def table(self, name: str) -> Table:
        return list(self.kernel.mappings[name].table) if name in self.kernel.mappings else []

    def status(self, name: str) -> Table:
        device = self.kernel.mapping(name)
        rows = []
        for row in device.table:
            if row[2] in _CACHE_STATUS:
                dead = row[2] == "cache" and self.kernel.ssd_is_dead
                rows.append((*row[:3], "Fail" if dead else _CACHE_STATUS[row[2]]))
                continue
            if row[2] == "verity":
                rows.append((*row[:3], "C" if device.corrupt else "V"))
                continue
            if row[2].startswith("snapshot"):
                rows.append((*row[:3], stores.status(self.kernel, row)))
                continue
            states = [
                f"{n} {'F 1' if self.kernel.has_failed(device, n) else 'A 0'}"
                for n in NUMBER.findall(row[3])
            ]
            rows.append((*row[:3], " ".join(states)))
        return rows

    def statuses(self, names: list[str]) -> dict[str, Table]:
        return {name: self.status(name) for name in names if name in self.kernel.mappings}

    def names(self) -> list[str]:
        return list(self.kernel.mappings)
