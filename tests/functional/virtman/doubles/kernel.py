"""One node's kernel: its doubles, and what tests ask of it."""

from __future__ import annotations

import re
from types import ModuleType

from tests.functional.virtman.doubles import reading, stores
from tests.functional.virtman.doubles.bcache import Bcache
from tests.functional.virtman.doubles.block import Blocks
from tests.functional.virtman.doubles.chunks import Chunks
from tests.functional.virtman.doubles.device import ForeignDevices
from tests.functional.virtman.doubles.devices import Devices, Double
from tests.functional.virtman.doubles.dm import DeviceMapper
from tests.functional.virtman.doubles.dmstats import Statistics
from tests.functional.virtman.doubles.flashcache import Flashcache
from tests.functional.virtman.doubles.iscsi import Initiator
from tests.functional.virtman.doubles.lio import Targets
from tests.functional.virtman.doubles.loop import LoopDevices
from tests.functional.virtman.doubles.lvm import LogicalVolumes
from tests.functional.virtman.doubles.model import NUMBER
from tests.functional.virtman.doubles.modules import Modules
from tests.functional.virtman.doubles.network import Network
from tests.functional.virtman.doubles.page_cache import PageCache
from tests.functional.virtman.doubles.sessions import Sessions
from tests.functional.virtman.doubles.sockets import Connections
from tests.functional.virtman.doubles.ssd import CacheDevices
from tests.functional.virtman.doubles.sysfs import Sysfs
from tests.functional.virtman.doubles.targets import Served
from virtman import sysfs
from virtman.privileged import (
    bcache,
    block,
    chunks,
    device,
    dm,
    dmstats,
    flashcache,
    iscsi,
    kernel,
    lio,
    loop,
    lvm,
    sockets,
    ssd,
)
from virtman.stack import page_cache
from virtman.stack.transport.iscsi import sessions, targets

_STORE = re.compile(r"(?:(?<=_store_)|(?<=/stores/))s(\d+)\b")


class Kernel(Devices):
    """A kernel as its users see it.

    :ivar doubles: what stands for each module
    """

    def __init__(self, network: Network, name: str) -> None:
        super().__init__(network, name)
        self.chunks = Chunks(self)
        self.dm = DeviceMapper(self, self.chunks)
        self.iscsi = Initiator(self)
        self.lio = Targets(self)
        self.loop = LoopDevices(self)
        self.lvm = LogicalVolumes(self)
        self.doubles: dict[ModuleType, Double] = {
            bcache: Bcache(self),
            block: Blocks(self),
            chunks: self.chunks,
            device: ForeignDevices(self),
            dm: self.dm,
            dmstats: Statistics(self),
            flashcache: Flashcache(self, self.dm),
            iscsi: self.iscsi,
            kernel: Modules(self),
            lio: self.lio,
            loop: self.loop,
            lvm: self.lvm,
            page_cache: PageCache(self),
            sockets: Connections(self),
            ssd: CacheDevices(self),
            sysfs: Sysfs(self),
            sessions: Sessions(self),
            targets: Served(self),
        }

    def state(self) -> dict[str, object]:
        """All that the kernel has, with devices named, not numbered: for comparison.

        Stores are counted from 1 in it, as a name never comes twice.
        """
        with self.lock:
            names = self.names()
            found = {int(match[1]) for name in self.mappings if (match := _STORE.search(name))}
            ranks = {str(number): rank for rank, number in enumerate(sorted(found), 1)}

            def counted(text: str) -> str:
                return _STORE.sub(lambda match: f"s{ranks.get(match[1], match[1])}", text)

            def named(text: str) -> str:
                return counted(NUMBER.sub(lambda match: names.get(match[0], "gone"), text))

            return {
                "dm": {
                    counted(one.name): (
                        [(*row[:3], named(row[3])) for row in one.table],
                        "suspended" if one.suspended else "live",
                        "ro" if one.read_only else "rw",
                    )
                    for one in self.mappings.values()
                },
                "loops": sorted(
                    (counted(one.path), one.offset, one.read_only) for one in self.loops.values()
                ),
                "sessions": sorted(one.key for one in self.sessions),
                "records": sorted(self.remembered),
                "targets": sorted(
                    (one.iqn, number, lun.device, lun.sectors)
                    for one in self.targets()
                    for number, lun in one.luns.items()
                ),
                "caches": sorted(
                    (names[one.backing], one.cache_set is not None, tuple(one.settings.items()))
                    for one in self.members.values()
                ),
                "cache sets": len(self.cache_sets),
            }

    def is_clean(self) -> bool:
        """Tell whether nothing of ours is left."""
        return not any(self.state().values())

    def created(self, name: str) -> int:
        """How often a device-mapper device was made."""
        return self.log.count(("create", name))

    def logins(self) -> int:
        return sum(verb == "login" for verb, _ in self.log)

    def meet_wrong_bytes(self, name: str) -> None:
        """Let a verity device be read where its data are wrong, through what lies on it."""
        with self.lock:
            verity = self.mapping(name)
            assert verity.table[0][2] == "verity", name
            verity.corrupt = True
            for one in self.mappings.values():
                if one.table[0][2] == "multipath" and verity.number in one.below:
                    one.failed.add(verity.number)

    def path_states(self, name: str) -> dict[str, str]:
        """Which of a multipath's paths work (A) and which failed (F), best first."""
        with self.lock:
            names = self.names()
            (row,) = self.dm.status(name)
            words = row[3].split()
            return {names[n]: state for n, state in zip(words[::3], words[1::3], strict=False)}

    def write(self, name: str, chunk: int, text: str) -> None:
        """Write to a device as a VM does."""
        stores.write(self, name, chunk, text)

    def read(self, name: str, chunk: int) -> str:
        """Read from a device as a VM does; empty where the image shows."""
        return stores.read(self, name, chunk)

    def vm_reads(self, image: str, offset: int, length: int, ahead: int = 0) -> None:
        """Read from an image as a VM of this node does; the kernel reads some bytes ahead."""
        with self.lock:
            reading.read(self, image, offset, length, ahead)

    def end_reads(self) -> None:
        """Let all reads on their way end, and with them what waited for that."""
        with self.lock:
            for device in self.mappings.values():
                device.hung = False
                device.holding, device.suspended = False, device.suspended or device.holding
