"""All that a simulated kernel has, and what holds between its devices."""

from __future__ import annotations

import errno
import itertools
import os
from collections import defaultdict
from pathlib import Path

from tests.functional.virtman.doubles.model import (
    SECTOR,
    SSD,
    SSD_NUMBER,
    CacheSet,
    Disk,
    Logical,
    Loop,
    Mapping,
    Member,
    Session,
    Ssd,
)
from tests.functional.virtman.doubles.network import Network, Target

_SSD_SECTORS = 1 << 21


class Devices:
    """All that one node's kernel has.

    :ivar held: device nodes that somebody else, such as a hypervisor, has open
    :ivar remembered: targets of which open-iscsi has a record, which outlives a reboot
    :ivar log: verbs that were called, with their first argument
    :ivar disk: folder of the files behind logical volumes
    :ivar flushed: devices and files that were
    :ivar is_read: whether somebody reads all the time, so that what is lost is seen to fail
    :ivar forgotten: devices, and where on them the page cache was dropped
    :ivar ahead: devices, and which bytes of them were fetched ahead
    :ivar cache_answers: whether what is fetched is in the cache already
    :ivar hashes_fetched: bytes of hashes that dm-verity fetches at a time
    :ivar rotten: where in an image its cache, of this name, gives wrong bytes
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name
        self.lock = network.lock
        self.mappings: dict[str, Mapping] = {}
        self.loops: dict[str, Loop] = {}
        self.sessions: list[Session] = []
        self.remembered: set[tuple[str, int, str]] = set()
        self.members: dict[str, Member] = {}
        self.cache_sets: dict[str, CacheSet] = {}
        self.missing_modules: set[str] = set()
        self.hashes_fetched = 256 * 1024
        self.held: set[str] = set()
        self.harm: list[str] = []
        self.log: list[tuple[str, str]] = []
        self.ssd = Ssd()
        self.ssd_is_dead = False
        self.ssd_holds = ""
        self.ssd_sectors = _SSD_SECTORS
        self.volumes: dict[str, Logical] = {}
        self.disk = Path()
        self.is_read = True
        self.forgotten: list[tuple[str, int]] = []
        self.flushed: list[str] = []
        self.rotten: dict[str, set[int]] = defaultdict(set)
        self.lacking: dict[str, set[int]] = defaultdict(set)
        self.fetched = 0
        self.ahead: list[tuple[str, int, int]] = []
        self.cache_answers = False
        self.minors = itertools.count()
        network.kernels.append(self)

    def forget(self) -> None:
        """Boot: nothing is left but what lies on disks."""
        for target in self.targets():
            del self.network.targets[target.ip, target.port, target.iqn]
        for table in (self.mappings, self.loops, self.sessions, self.members, self.cache_sets):
            table.clear()

    def lose_ssd(self) -> None:
        """Let each access to the cache device fail: bcache gives its cache set up."""
        self.ssd_is_dead = True
        self.cache_sets.clear()
        for one in self.members.values():
            one.cache_set = None

    def return_ssd(self) -> None:
        self.ssd_is_dead = False
        self.ssd_holds = ""

    def names(self) -> dict[str, str]:
        names = {one.number: one.name for one in self.mappings.values()}
        names |= {one.number: f"loop on {one.path}" for one in self.loops.values()}
        names |= {one.number: path for path, one in self.volumes.items()}
        names |= {
            disk.number: f"LUN {lun} of {one.key[2]}"
            for one in self.sessions
            for lun, disk in one.disks.items()
        }
        names |= {
            one.number: f"bcache over {names.get(one.backing, 'gone')}"
            for one in self.members.values()
        }
        return names | {SSD_NUMBER: SSD}

    def targets(self) -> list[Target]:
        return [one for one in self.network.targets.values() if one.kernel is self]

    def children(self, iqn: str) -> list[str]:
        return [name for one in self.targets() if one.iqn == iqn
                for name in self.network.sessions_at(one)]  # fmt: skip

    def mapping(self, name: str) -> Mapping:
        if name not in self.mappings:
            raise OSError(errno.ENXIO, f"there is no {name}")
        return self.mappings[name]

    def named(self, number: str) -> str:
        return next(one.name for one in self.mappings.values() if one.number == number)

    def member(self, name: str) -> Member:
        """Return a bcache device, known by its name or its backing device's number."""
        for known, one in self.members.items():
            if name in (known, one.backing):
                return one
        raise OSError(errno.ENOENT, f"there is no {name}")

    def read_ahead(self, path: str) -> int:
        """Return how far who opens a device or file now reads ahead."""
        mapping = self.mappings.get(path.removeprefix("/dev/mapper/"))
        return mapping.read_ahead if mapping else Mapping.read_ahead

    def number(self, device: str) -> str:
        found = self.by_node(device)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", device)
        return found

    def by_node(self, device: str) -> str | None:
        name = device.rsplit("/", 1)[-1]
        if name.startswith("dm-"):
            numbers = [one.number for one in self.mappings.values()]
            return next((one for one in numbers if one.endswith(f":{name[3:]}")), None)
        if device.startswith("/dev/mapper/"):
            mapping = self.mappings.get(name)
            return mapping.number if mapping is not None and mapping.has_node else None
        if device in self.loops:
            return self.loops[device].number
        if name in self.members and device == f"/dev/{name}":
            return self.members[name].number
        if device in self.volumes:
            return self.volumes[device].number
        return SSD_NUMBER if device == SSD else None

    def disk_named(self, name: str) -> Disk:
        for session in self.sessions:
            for disk in session.disks.values():
                if disk.name == name:
                    return disk
        raise FileNotFoundError(errno.ENOENT, name)

    def length(self, path: str) -> int:
        """Bytes of a file or device."""
        number = self.by_node(path)
        return self.sizes()[number] * SECTOR if number else os.stat(path).st_size

    def sizes(self) -> dict[str, int]:
        sizes = {one.number: one.sectors for one in self.mappings.values()}
        for session in self.sessions:
            sizes |= {disk.number: disk.sectors for disk in session.disks.values()}
        for one in self.loops.values():
            sizes[one.number] = (one.length - one.offset) // SECTOR
        for volume in self.volumes.values():
            sizes[volume.number] = volume.file.stat().st_size // SECTOR
        for member in self.members.values():
            sizes[member.number] = sizes.get(member.backing, 0) - 2048
        return sizes | {SSD_NUMBER: self.ssd_sectors}

    def write_protected(self) -> set[str]:
        return (
            {one.number for one in self.mappings.values() if one.read_only}
            | {one.number for one in self.loops.values() if one.read_only}
            | {disk.number for one in self.sessions for disk in one.disks.values()}
        )

    def is_used(self, number: str, node: str) -> bool:
        return (
            node in self.held
            or any(number in one.below for one in self.mappings.values())
            or any(one.path == node for one in self.loops.values())
            or any(lun.device == node for one in self.targets() for lun in one.luns.values())
            or any(one.backing == number for one in self.members.values())
            or any(one.device == number for one in self.cache_sets.values())
        )

    def under(self, numbers: list[str]) -> set[str]:
        return {n for one in self.mappings.values() if one.number in numbers for n in one.below}

    def all_below(self, device_number: str) -> set[str]:
        """Numbers of all that a device lies on, through device-mapper devices."""
        direct = {n for one in self.mappings.values() if one.number == device_number
                  for n in one.below}  # fmt: skip
        return direct | {n for below in direct for n in self.all_below(below)}

    def is_cut_off(self, session: Session) -> bool:
        """Tell whether a session has no connection; it comes back by what its login proved."""
        target = self.network.targets.get(session.key)
        if target is None:
            session.is_lost = True
        elif target.chap == session.proved:
            session.is_lost = False
        return session.is_cut or session.is_lost

    def disks_run(self, device_number: str) -> bool:
        """Tell whether all disks below a device are still served."""
        below = self.all_below(device_number)
        return all(
            not self.is_cut_off(session) and lun in self.network.targets[session.key].luns
            for session in self.sessions
            for lun, disk in session.disks.items()
            if disk.number in below
        )

    def has_failed(self, device: Mapping, path: str) -> bool:
        """Tell whether a multipath's path met an error, which takes a read that went there."""
        return path in device.failed or (self.is_read and not self.disks_run(path))

    def fill(self, device: Mapping) -> None:
        """Let the cache have an image's data once its member lies on the image."""
        image = device.name.split("_")[1]
        content = self.network.contents.get(image, image)
        for one in self.members.values():
            if one.backing == device.number and one.cache_set and device.table[-1][2] == "linear":
                held = self.ssd.holds[one.uuid]
                if held not in ("", content):
                    self.harm.append(f"{device.name}: {held} was served for {content}")
                self.ssd.holds[one.uuid] = content

    def settle(self) -> None:
        """Let go of what waited only for its last user."""
        for name, one in list(self.loops.items()):
            if one.going and not self.is_used(one.number, name):
                del self.loops[name]
        for name, member in list(self.members.items()):
            if member.going and not self.is_used(member.number, f"/dev/{name}"):
                del self.members[name]


class Double:
    """Stands for a module: its public methods are all that the module's callers use."""

    def __init__(self, kernel: Devices) -> None:
        self.kernel = kernel
