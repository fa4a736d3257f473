"""A simulated kernel: what the root verbs change and the look-ups in /sys see, in memory.

One ``Network`` joins the kernels of several nodes: a login on one is a session at the
target of another. A ``Process`` is what runs on a kernel: verbs know it by the thread that
calls, and threads belong to the process of the thread that started them. A process can be
told to let its n-th verb fail, or to die there.

The kernel is as strict as the real one where it matters: a device is busy while something
lies on it, a table must fit the devices that it names, and what is done to an absent
device is an error. What a real kernel would not survive well is kept in ``harm``.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import fixtures

from virtman import sysfs
from virtman.model.plan import Portal
from virtman.privileged import (
    bcache,
    block,
    chunks,
    device,
    dm,
    flashcache,
    iscsi,
    kernel,
    lio,
    loop,
    lvm,
    sockets,
    ssd,
)
from virtman.stack.transport import path as path_layer

SECTOR = 512
CHUNK = 65536
SSD = "/dev/ssd"
_SSD_NUMBER = "259:0"
_SSD_SECTORS = 1 << 21
_NUMBER = re.compile(r"\b\d+:\d+\b")
_STORE = re.compile(r"(?:(?<=_store_)|(?<=/stores/))s(\d+)\b")
_SUPERBLOCK = "bcache superblock"
SALT = hashlib.sha256(b"debian").digest()
_ZERO_DIGEST = hashlib.sha256(SALT + bytes(4096)).digest()
# How the drivers say that of 100 reads 60 were hits; flashcache, that it let 10 pass by.
_CACHE_STATUS = {
    "cache": "8 11/2048 128 10/2048 60 40 0 0 0 10 0 2 writethrough smq 0 rw - ",
    "flashcache": "stats: \n\treads(100), writes(0)\n\tread hits(60), read hit percent(60)\n"
    "\tdisk reads(40), disk writes(0) ssd reads(60) ssd writes(30)\n"
    "\tuncached reads(10), uncached writes(0), uncached IO requeue(0)\n",
}
# Which of the devices in a target's parameters must be as long as the target; else all.
_ORIGIN = {
    "snapshot": (0, 0),
    "snapshot-merge": (0, 0),
    "cache": (2, 3),
    "flashcache": (0, 1),
    "verity": (0, 1),
}


class Killed(BaseException):
    """The process died here: nothing catches this."""


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

    kernel: Kernel | None
    ip: str
    port: int
    iqn: str
    luns: dict[int, Lun] = field(default_factory=dict)
    chap: tuple[str, str] | None = None
    sent: int = 0


class Network:
    """All that listens, by (ip, port, iqn).

    :ivar contents: what images hold, where a test gave one another content
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.targets: dict[tuple[str, int, str], Target] = {}
        self.silent: set[tuple[str, int]] = set()
        self.contents: dict[str, str] = {}
        self.kernels: list[Kernel] = []

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


@dataclass
class Mapping:
    """A device-mapper device.

    :ivar hung: whether reads are on their way through it that have no end
    :ivar holding: whether it is being suspended, which such reads keep from its end
    :ivar failed: numbers of a multipath's paths that met an error since its last reload
    :ivar corrupt: whether a verity device has met wrong bytes
    :ivar read_ahead: bytes, for those who open it from now on
    """

    name: str
    number: str
    table: list[tuple[int, int, str, str]]
    read_only: bool
    suspended: bool = False
    hung: bool = False
    holding: bool = False
    reloads: int = 0
    wiped: bool = False
    failed: set[str] = field(default_factory=set)
    corrupt: bool = False
    read_ahead: int = 128 * 1024

    @property
    def below(self) -> list[str]:
        return [word for row in self.table for word in _NUMBER.findall(row[3])]

    @property
    def sectors(self) -> int:
        return sum(row[1] for row in self.table)


@dataclass
class Loop:
    """A loop device.

    :ivar read_ahead: bytes, of the device that it shows
    """

    number: str
    path: str
    offset: int
    read_only: bool
    read_ahead: int
    going: bool = False


@dataclass
class Logical:
    """A logical volume; a file has what it holds."""

    number: str
    file: Path
    identity: str = ""


@dataclass
class Disk:
    """A LUN as the initiator sees it."""

    name: str
    number: str
    sectors: int
    merges: bool = True


@dataclass
class Session:
    """A session of an initiator and the disks that it brought.

    :ivar proof: user and secret that the record of its target has
    :ivar patience: seconds for which reads wait once it has lost its connection
    """

    key: tuple[str, int, str]
    disks: dict[int, Disk]
    proof: tuple[str, str]
    is_cut: bool = False
    patience: int = 2


@dataclass
class Member:
    """A bcache device over a backing device.

    :ivar uuid: under which the cache keeps what it holds of it
    :ivar waits: for the set that it was a member of; until then there is no bcache device
    :ivar dirty: bytes that are in the cache alone
    """

    number: str
    backing: str
    uuid: str
    waits: bool = False
    cache_set: str | None = None
    going: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    reads: tuple[int, int, int] = (0, 0, 0)
    dirty: int = 0


@dataclass
class CacheSet:
    """A registered cache."""

    device: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class Ssd:
    """What lies on the cache device: it outlives a reboot.

    :ivar holds: what a cache set has there, by the member's UUID: data of which content
    :ivar places: for UUIDs in the set's table; one that was taken is never given to another
    """

    cache_set: str = ""
    holds: dict[str, str] = field(default_factory=dict)
    places: int = 512


@dataclass
class Process:
    """Something that runs on a kernel, with a fate.

    :ivar fail_at: number of the verb, counted from 1, that fails; 0 for none
    :ivar kill_at: number of the verb at which the process dies
    """

    kernel: Kernel
    count: int = 0
    fail_at: int = 0
    kill_at: int = 0
    fired: str = ""
    dead: bool = False

    def fate(self, fail_at: int = 0, kill_at: int = 0) -> None:
        self.count, self.fail_at, self.kill_at, self.fired = 0, fail_at, kill_at, ""

    def passes(self, verb: str) -> None:
        """Count a verb, and let it fail or kill if its turn has come."""
        self.count += 1
        if self.dead or self.count == self.kill_at:
            self.fired = self.fired or verb
            self.dead = True
            raise Killed(verb)
        if self.count == self.fail_at:
            self.fired = verb
            raise OSError(errno.EIO, f"injected: {verb}")

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let this thread, and threads that it starts, belong to the process."""
        before = getattr(_thread, "process", None)
        _thread.process = self
        try:
            yield
        finally:
            _thread.process = before


_thread = threading.local()


def current() -> Process:
    return _thread.process


class Kernel:
    """One node's kernel.

    :ivar held: device nodes that somebody else, such as a hypervisor, has open
    :ivar remembered: targets of which open-iscsi has a record, which outlives a reboot
    :ivar log: verbs that were called, with their first argument
    :ivar disk: folder of the files behind logical volumes
    :ivar flushed: devices and files that were
    :ivar forgotten: devices, and where on them the page cache was dropped
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
        self.held: set[str] = set()
        self.harm: list[str] = []
        self.log: list[tuple[str, str]] = []
        self.ssd = Ssd()
        self.ssd_is_dead = False
        self.ssd_holds = ""
        self.ssd_sectors = _SSD_SECTORS
        self.volumes: dict[str, Logical] = {}
        self.disk = Path()
        self.forgotten: list[tuple[str, int]] = []
        self.flushed: list[str] = []
        self.rotten: dict[str, set[int]] = defaultdict(set)
        self.lacking: dict[str, set[int]] = defaultdict(set)
        self.fetched = 0
        self._minors = itertools.count()
        network.kernels.append(self)

    def forget(self) -> None:
        """Boot: nothing is left but what lies on disks."""
        for target in self._targets():
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

    # What tests ask.

    def state(self) -> dict[str, object]:
        """All that the kernel has, with devices named, not numbered: for comparison.

        Stores are counted from 1 in it, as a name never comes twice.
        """
        with self.lock:
            names = self._names()
            found = {int(match[1]) for name in self.mappings if (match := _STORE.search(name))}
            ranks = {str(number): rank for rank, number in enumerate(sorted(found), 1)}

            def counted(text: str) -> str:
                return _STORE.sub(lambda match: f"s{ranks.get(match[1], match[1])}", text)

            def named(text: str) -> str:
                return counted(_NUMBER.sub(lambda match: names.get(match[0], "gone"), text))

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
                    (counted(one.path), one.offset, one.read_only) for one in self._live()
                ),
                "sessions": sorted(one.key for one in self.sessions),
                "records": sorted(self.remembered),
                "targets": sorted(
                    (one.iqn, number, lun.device, lun.sectors)
                    for one in self._targets()
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

    def children(self, iqn: str) -> list[str]:
        return [name for one in self._targets() if one.iqn == iqn
                for name in self.network.sessions_at(one)]  # fmt: skip

    def meet_wrong_bytes(self, name: str) -> None:
        """Let a verity device be read where its data are wrong, through what lies on it."""
        with self.lock:
            verity = self._mapping(name)
            assert verity.table[0][2] == "verity", name
            verity.corrupt = True
            for one in self.mappings.values():
                if one.table[0][2] == "multipath" and verity.number in one.below:
                    one.failed.add(verity.number)

    def path_states(self, name: str) -> dict[str, str]:
        """Which of a multipath's paths work (A) and which failed (F), best first."""
        with self.lock:
            names = self._names()
            (row,) = self.dm_status(name)
            words = row[3].split()
            return {names[n]: state for n, state in zip(words[::3], words[1::3], strict=False)}

    # Device mapper.

    def dm_create(self, name: str, table: list[tuple[int, int, str, str]], read_only: bool) -> None:
        if name in self.mappings:
            raise OSError(errno.EBUSY, f"{name} is there")
        self._check_table(table, read_only)
        number = f"253:{next(self._minors)}"
        self.mappings[name] = Mapping(name, number, [_reworded(row) for row in table], read_only)
        self._begin_stores(table)

    def dm_reload(
        self,
        name: str,
        table: list[tuple[int, int, str, str]],
        read_only: bool,
        flush: bool,
        freeze: bool,
        settle: str = "",
    ) -> None:
        device = self._mapping(name)
        self._check_table(table, read_only, device.number)
        if flush and not device.suspended and device.hung:
            raise OSError(errno.EINTR, f"device mapper, {name}: Interrupted system call")
        self._check_led(device, table, flush)
        if settle:
            before, device.suspended = device.suspended, True
            self.chunks_flush(settle)
            device.suspended = before
        kinds = {row[2] for row in (*device.table, *table)}
        if "verity" in kinds and len(kinds) > 1:
            raise OSError(errno.EINVAL, "a verity device stays one")
        device.table, device.read_only = [_reworded(row) for row in table], read_only
        device.suspended = device.corrupt = False
        device.failed.clear()
        device.reloads += 1
        self._fill(device)
        self._settle()

    def _check_led(
        self, device: Mapping, table: list[tuple[int, int, str, str]], flush: bool
    ) -> None:
        """See to it that a store may be put on another one than it lies on."""
        if not device.table[0][2].startswith("snapshot"):
            return
        before, after = (_NUMBER.findall(rows[0][3])[0] for rows in (device.table, table))
        if before == after:
            return
        if not (flush or device.suspended):
            self.harm.append(f"{device.name}: what was written meanwhile is lost")
        for one in self.mappings.values():
            if (
                one.table[0][2] == "snapshot-merge"
                and one.below[0] == after
                and any(
                    other.hung
                    and not other.suspended
                    and one.number in self._all_below(other.number)
                    for other in self.mappings.values()
                )
            ):
                self.harm.append(f"{device.name}: waits until nothing goes through {one.name}")

    def dm_revert(self, name: str) -> None:
        self._mapping(name).suspended = False

    def dm_suspend(self, name: str, flush: bool, freeze: bool, patience: float = 10.0) -> None:
        device = self._mapping(name)
        if flush and not device.suspended and device.hung:
            raise OSError(errno.EINTR, f"device mapper, {name}: Interrupted system call")
        device.suspended = True

    def dm_hold(self, name: str) -> bool:
        device = self._mapping(name)
        begins = not device.holding
        device.holding, device.suspended = device.hung, not device.hung
        return begins

    def dm_holding(self) -> list[str]:
        return [one.name for one in self.mappings.values() if one.holding]

    def end_reads(self) -> None:
        """Let all reads on their way end, and with them what waited for that."""
        with self.lock:
            for device in self.mappings.values():
                device.hung = False
                device.holding, device.suspended = False, device.suspended or device.holding

    def dm_resume(self, name: str) -> None:
        self._mapping(name).suspended = False

    def dm_remove(self, name: str) -> None:
        device = self._mapping(name)
        if self._is_used(device.number, f"/dev/mapper/{name}"):
            raise OSError(errno.EBUSY, f"{name} is open")
        del self.mappings[name]
        self._settle()

    def dm_message(self, name: str, words: str) -> None:
        device = self._mapping(name)
        if words in ("fail_if_no_path", "queue_if_no_path"):
            device.table = [_with_queueing(row, words[0] == "q") for row in device.table]
        if words.startswith("reinstate_path "):
            device.failed.discard(words.split()[1])

    def dm_table(self, name: str) -> list[tuple[int, int, str, str]]:
        return list(self.mappings[name].table) if name in self.mappings else []

    def dm_status(self, name: str) -> list[tuple[int, int, str, str]]:
        device = self._mapping(name)
        rows = []
        for row in device.table:
            if row[2] in _CACHE_STATUS:
                dead = row[2] == "cache" and self.ssd_is_dead
                rows.append((*row[:3], "Fail" if dead else _CACHE_STATUS[row[2]]))
                continue
            if row[2] == "verity":
                rows.append((*row[:3], "C" if device.corrupt else "V"))
                continue
            if row[2].startswith("snapshot"):
                rows.append((*row[:3], self._store_status(row)))
                continue
            states = [
                f"{n} {'A' if self.sys_disks_run(n) and n not in device.failed else 'F'} 0"
                for n in _NUMBER.findall(row[3])
            ]
            rows.append((*row[:3], " ".join(states)))
        return rows

    def dm_statuses(self, names: list[str]) -> dict[str, list[tuple[int, int, str, str]]]:
        return {name: self.dm_status(name) for name in names if name in self.mappings}

    def dm_names(self) -> list[str]:
        return list(self.mappings)

    # What is written to a VM's device, by chunk. A store's file begins with what it holds.

    def write(self, name: str, chunk: int, text: str) -> None:
        """Write to a device as a VM does."""
        device = self._mapping(name)
        if device.suspended or device.holding:
            raise BlockingIOError(errno.EAGAIN, f"{name} holds its I/O back")
        ((_, _, target, _),) = device.table
        if target == "error":
            raise OSError(errno.EIO, f"{name} fails all I/O")
        if target == "linear":
            self.write(self._named(device.below[0]), chunk, text)
            return
        path, held = self._exceptions(device.below[1])
        if target == "snapshot-merge" and chunk not in held:
            self.write(self._named(device.below[0]), chunk, text)
        else:
            _hold(path, {**held, chunk: text})

    def read(self, name: str, chunk: int) -> str:
        """Read from a device as a VM does; empty where the image shows."""
        device = self._mapping(name)
        ((_, _, target, _),) = device.table
        if target == "error":
            raise OSError(errno.EIO, f"{name} fails all I/O")
        if target == "linear":
            return self.read(self._named(device.below[0]), chunk)
        if not target.startswith("snapshot"):
            return ""
        _, held = self._exceptions(device.below[1])
        return held[chunk] if chunk in held else self.read(self._named(device.below[0]), chunk)

    def _store_status(self, row: tuple[int, int, str, str]) -> str:
        """Say how full a store is; one that is being merged goes on by a chunk meanwhile."""
        lower, cow = _NUMBER.findall(row[3])
        path, held = self._exceptions(cow)
        if row[2] == "snapshot-merge" and held:
            chunk = max(held)
            if sum(lower in one.below for one in self.mappings.values()) > 1:
                self.harm.append(f"merged into {self._named(lower)} under others")
            self.write(self._named(lower), chunk, held.pop(chunk))
            _hold(path, held)
        own = 2 * CHUNK // SECTOR  # its header, and the first table of chunks
        taken = own + CHUNK // SECTOR * len(held)
        return f"{taken}/{path.stat().st_size // SECTOR} {own}"

    def _exceptions(self, cow: str) -> tuple[Path, dict[int, str]]:
        found = [one.file for one in self.volumes.values() if one.number == cow]
        found += [Path(one.path) for one in self.loops.values() if one.number == cow]
        (path,) = found
        with open(path, "rb") as file:
            text = file.read(16 * 1024).rstrip(b"\0")
        return path, {int(chunk): held for chunk, held in json.loads(text or b"{}").items()}

    def _named(self, number: str) -> str:
        return next(one.name for one in self.mappings.values() if one.number == number)

    # Loop devices.

    def loop_attach(self, path: str, offset: int, read_only: bool, durable: bool = False) -> str:
        if self._by_node(path) is None and not Path(path).is_file():
            raise OSError(errno.ENOENT, path)
        name = next(f"/dev/loop{n}" for n in itertools.count() if f"/dev/loop{n}" not in self.loops)
        read_ahead = self._read_ahead(path)
        self.loops[name] = Loop(f"7:{next(self._minors)}", path, offset, read_only, read_ahead)
        return name

    def loop_detach(self, device: str) -> None:
        if device not in self.loops:
            raise OSError(errno.ENXIO, device)
        self.loops[device].going = True
        self._settle()

    # Logical volumes.

    def lvm_create(self, group: str, name: str, size: int) -> None:
        path = f"/dev/{group}/{name}"
        if path in self.volumes:
            raise OSError(errno.EIO, f"lvcreate: {name} already exists")
        file = self.disk / name
        with open(file, "wb") as held:
            held.truncate(size)
        self.volumes[path] = Logical(f"254:{next(self._minors)}", file)

    def lvm_remove(self, group: str, name: str) -> None:
        path = f"/dev/{group}/{name}"
        if path in self.volumes:
            if self._is_used(self.volumes[path].number, path):
                raise OSError(errno.EIO, f"lvremove: {path} is in use")
            self.volumes.pop(path).file.unlink()

    def lvm_free(self, group: str) -> int:
        return 1 << 40

    # Devices of others: they are logical volumes whose group is not ours.

    def device_claim(self, path: str, size: int) -> None:
        if path not in self.volumes:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        volume = self.volumes[path]
        if self._is_used(volume.number, path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        if volume.file.stat().st_size < size:
            raise OSError(errno.ENOSPC, f"shorter than {size} bytes")
        if any(volume.file.read_bytes()[: 64 * 1024]):
            raise OSError(errno.EEXIST, "it holds something")

    def device_begin(self, path: str, chunk: int) -> None:
        if self._is_used(self.volumes[path].number, path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        _hold(self.volumes[path].file, {})

    def device_is_store(self, path: str) -> bool:
        return self.volumes[path].file.read_bytes().startswith(b"{")

    def device_copy(self, source: str, target: str, length: int) -> None:
        old, new = (
            self.volumes[path].file if path in self.volumes else Path(path)
            for path in (source, target)
        )
        with open(old, "rb") as held, open(new, "r+b") as file:
            file.write(held.read(length))

    def device_clear(self, path: str) -> None:
        if path in self.volumes:
            if self._is_used(self.volumes[path].number, path):
                raise OSError(errno.EBUSY, "Device or resource busy")
            with open(self.volumes[path].file, "r+b") as file:
                if file.read(1) == b"{":
                    file.seek(0)
                    file.write(bytes(64 * 1024))

    # iSCSI, both ends.

    def iscsi_login(self, ip: str, port: int, target: str, user: str, secret: str) -> None:
        key = (ip, port, target)
        if any(one.key == key for one in self.sessions):
            raise OSError(errno.EIO, "iscsiadm: status 15: session exists")
        if key not in self.network.targets:
            raise OSError(errno.EIO, "iscsiadm: status 19: target not found")
        if self.network.targets[key].chap != (user, secret):
            raise PermissionError(errno.EACCES, f"{target}: wrong user or secret")
        self.sessions.append(Session(key, {}, (user, secret)))
        self.remembered.add(key)
        self.iscsi_scan(target)

    def iscsi_scan(self, target: str, lun: int | None = None) -> None:
        for session in self.sessions:
            if session.key[2] == target and session.key in self.network.targets:
                for number, found in self.network.targets[session.key].luns.items():
                    if number not in session.disks and lun in (None, number):
                        minor = next(self._minors)
                        disk = Disk(f"sd-{self.name}-{minor}", f"8:{minor}", found.sectors)
                        session.disks[number] = disk

    def iscsi_remember(self, ip: str, port: int, target: str, user: str, secret: str) -> None:
        session = next((one for one in self.sessions if one.key == (ip, port, target)), None)
        if session is None:
            raise OSError(errno.ENOENT, f"open-iscsi has no record of {target}")
        session.proof = (user, secret)

    def iscsi_records(self) -> list[tuple[str, int, str]]:
        return sorted(self.remembered)

    def iscsi_forget(self, ip: str, port: int, target: str) -> None:
        self.remembered.remove((ip, port, target))

    def iscsi_logout(self, ip: str, port: int, target: str) -> None:
        for session in self.sessions:
            if session.key == (ip, port, target):
                lives = session.key in self.network.targets
                if lives and any(self._is_used(d.number, "") for d in session.disks.values()):
                    self.harm.append(f"logged out of {target} under a device")
                self.sessions.remove(session)
                self.remembered.discard(session.key)
                return
        raise OSError(errno.EIO, "iscsiadm: status 21: no session")

    def iscsi_bear(self, ip: str, port: int, seconds: int) -> None:
        for one in self.sessions:
            if one.key[:2] == (ip, port):
                one.patience = seconds

    def sockets_end(self, program: str, ip: str, port: int) -> int:
        ended = [one for one in self.sessions if one.key[:2] == (ip, port)]
        for one in ended:
            one.is_cut = True
        return len(ended)

    def lio_serve(
        self, name: str, device: str, size: int, target: str, lun: int, ip: str, port: int
    ) -> None:
        mine = self.network.targets.get((ip, port, target)) or Target(self, ip, port, target)
        served = [one for target_ in self._targets() for one in target_.luns.values()]
        if lun in mine.luns or any(one.storage == name for one in served):
            raise OSError(errno.EIO, f"LIO, {target}: exists")
        if self._by_node(device) is None and not Path(device).is_file():
            raise OSError(errno.EIO, f"LIO, {target}: no {device}")
        mine.luns[lun] = Lun(name, device, size // SECTOR, self._read_ahead(device))
        self.network.targets[ip, port, target] = mine

    def lio_withdraw(self, name: str, target: str, lun: int) -> None:
        for one in self._targets():
            if one.iqn == target:
                one.luns.pop(lun, None)
            for number in [number for number, of in one.luns.items() if of.storage == name]:
                del one.luns[number]
            if not one.luns:
                del self.network.targets[one.ip, one.port, one.iqn]

    def lio_serves(self, name: str, target: str, lun: int) -> bool:
        return any(
            one.iqn == target and lun in one.luns and one.luns[lun].storage == name
            for one in self._targets()
        )

    def lio_require(self, target: str, user: str, secret: str) -> None:
        for one in self._target(target):
            one.chap = (user, secret)

    def lio_sessions(self, target: str) -> list[str]:
        return self.children(target)

    # bcache.

    def bcache_format_cache(self, device: str, block: int) -> None:
        self._must_be_free(device)
        if self.ssd_is_dead:
            raise OSError(errno.EIO, f"make-bcache: {device} cannot be written")
        self.ssd = Ssd(f"set-{next(self._minors)}")

    def bcache_format_backing(self, device: str, data_offset: int, block: int) -> None:
        self._must_be_free(device)
        self._write_superblock(self._number(device), f"member-{next(self._minors)}", "")

    def bcache_register(self, device: str) -> None:
        number = self._number(device)
        if "cachegroup" in device:
            if self.ssd_is_dead:
                raise OSError(errno.EIO, f"{device} cannot be read")
            if not self.ssd.cache_set:
                raise OSError(errno.EINVAL, f"{device} has no superblock")
            self.cache_sets.setdefault(self.ssd.cache_set, CacheSet(number))
            return
        words = self._superblock_file(number).read_text().strip("\0").split(":")
        if words[0] != _SUPERBLOCK:
            raise OSError(errno.EINVAL, f"{device} has no superblock")
        if any(one.backing == number for one in self.members.values()):
            return
        minor = next(self._minors)
        self.members[f"bcache{minor}"] = Member(f"252:{minor}", number, words[1], bool(words[2]))
        if words[2] in self.cache_sets:
            self.bcache_attach(f"bcache{minor}", words[2])

    def bcache_configure(self, kernel_name: str, setting: str, value: str) -> None:
        self._member(kernel_name).settings[setting] = value

    def bcache_configure_set(self, cache_set: str, setting: str, value: str) -> None:
        if cache_set not in self.cache_sets:
            raise OSError(errno.ENOENT, cache_set)
        self.cache_sets[cache_set].settings[setting] = value

    def bcache_attach(self, kernel_name: str, cache_set: str) -> None:
        member = self._member(kernel_name)
        if cache_set not in self.cache_sets:
            raise OSError(errno.ENOENT, cache_set)
        if member.cache_set is not None:
            raise OSError(errno.EINVAL, f"{kernel_name} is attached")
        if member.uuid not in self.ssd.holds:
            if not self.ssd.places:
                raise OSError(errno.EINVAL, "no room for UUID")
            self.ssd.places -= 1
            self.ssd.holds[member.uuid] = ""
        member.cache_set, member.waits = cache_set, False
        self._write_superblock(member.backing, member.uuid, cache_set)
        self._fill(next(one for one in self.mappings.values() if one.number == member.backing))

    def bcache_detach(self, kernel_name: str) -> None:
        member = self._member(kernel_name)
        member.dirty -= min(member.dirty, 1 << 20)
        if member.dirty:  # the kernel goes on with it
            return
        member.cache_set = None
        self.ssd.holds.pop(member.uuid, None)
        self._write_superblock(member.backing, member.uuid, "")

    def bcache_stop(self, kernel_name: str) -> None:
        self._member(kernel_name).going = True
        self._settle()

    def bcache_stop_set(self, cache_set: str) -> None:
        if self.cache_sets.pop(cache_set, None) is None:
            raise OSError(errno.ENOENT, cache_set)
        if any(one.cache_set == cache_set for one in self.members.values()):
            self.harm.append("stopped a cache set that has members")

    # Slices of the cache device.

    def ssd_claim(self, device: str) -> None:
        self._number(device)
        if self.ssd_is_dead:
            raise OSError(errno.EIO, f"{device} cannot be read")
        if self.ssd_holds:
            raise OSError(errno.EMEDIUMTYPE, f"{device} holds {self.ssd_holds}")

    def ssd_wipe(self, device: str) -> None:
        if self._is_used(self._number(device), device):
            self.harm.append(f"{device} was wiped under a cache")
        self._mapping(device.rsplit("/", 1)[-1]).wiped = True

    def flashcache_create(self, name: str, cache: str, disk: str) -> None:
        if not self._mapping(cache.rsplit("/", 1)[-1]).wiped:
            raise OSError(errno.EIO, f"flashcache_create: Valid Flashcache already on {cache}")
        numbers = [self._number(disk), self._number(cache)]
        length = self._sizes()[numbers[0]]
        self.dm_create(name, [(0, length, "flashcache", " ".join([*numbers, "3 2 8"]))], False)

    def flashcache_keep_latest(self, cache: str, disk: str) -> None:
        for path in (cache, disk):
            self._mapping(path.rsplit("/", 1)[-1])

    # Chunks of what VMs wrote. A chunk has the text that was written to it, then zeros.

    def chunks_written(self, store: str, chunk: int, count: int) -> bytes:
        _, held = self._exceptions(self._number(store))
        found = bytearray(-(-count // 8))
        for number in held:
            found[number // 8] |= 1 << number % 8
        return bytes(found)

    def chunks_read(self, device: str, runs: list[list[int]]) -> bytes:
        name = self._named(self._number(device))
        if self._mapping(name).suspended:
            raise BlockingIOError(errno.EAGAIN, f"{name} holds its I/O back")
        return b"".join(
            self.read(name, at // CHUNK).encode().ljust(CHUNK, b"\0")[: offset + length - at]
            for offset, length in runs
            for at in range(offset, offset + length, CHUNK)
        )

    def chunks_write(self, device: str, runs: list[list[int]], data: bytes) -> None:
        name, start = self._named(self._number(device)), 0
        if name in self.rotten:
            self.rotten[name] -= {offset for offset, _ in runs if not any(data)}
            return
        for offset, length in runs:
            for at in range(offset, offset + length, CHUNK):
                text = data[start : start + CHUNK].rstrip(b"\0").decode()
                self.write(name, at // CHUNK, text)
                start += CHUNK

    def chunks_flush(self, device: str) -> None:
        if device.startswith("/dev/"):
            self._number(device)
        self.flushed.append(device)

    # Blocks. An image is zeros; its leaves are hashes of these.

    def block_read(self, device: str, offset: int, length: int) -> bytes:
        self._fetch(device, offset, length)
        return (_ZERO_DIGEST * (length // 32))[:length]

    def _fetch(self, device: str, offset: int, length: int) -> None:
        """Have a cache fetch what it lacks."""
        self._number(device)
        lacking = self.lacking[device.rsplit("/", 1)[-1]]
        missed = lacking.intersection(range(offset, offset + length, 4096))
        lacking -= missed
        self.fetched += len(missed)

    def block_digests(self, device: str, offset: int, length: int, salt: bytes) -> bytes:
        self._fetch(device, offset, length)
        rotten = self.rotten[device.rsplit("/", 1)[-1]]
        right = hashlib.sha256(salt + bytes(4096)).digest()
        return b"".join(
            bytes(32) if at in rotten else right for at in range(offset, offset + length, 4096)
        )

    def block_discard(self, device: str, offset: int, length: int) -> None:
        name = device.rsplit("/", 1)[-1]
        self._member(name)
        self.rotten[name].discard(offset)

    def block_forget(self, device: str, offset: int, length: int) -> None:
        self._number(device)
        self.forgotten.append((device.rsplit("/", 1)[-1], offset))

    def block_read_ahead(self, kernel_name: str, size: int) -> None:
        for mapping in self.mappings.values():
            if mapping.number == kernel_name:
                mapping.read_ahead = size
                return
        self._member(kernel_name).settings["read_ahead_kb"] = str(size // 1024)

    def block_merge_nothing(self, kernel_name: str) -> None:
        for session in self.sessions:
            for disk in session.disks.values():
                disk.merges &= disk.name != kernel_name

    # Modules.

    def kernel_load_modules(self, names: list[str]) -> list[str]:
        return [name for name in names if name in self.missing_modules]

    # Look-ups without root.

    def sys_reads(self, device: str) -> int:
        self._number(device)
        return self.fetched

    def sys_number(self, device: str) -> str:
        return self._number(device)

    def sys_kernel_name(self, device: str) -> str:
        return device.rsplit("/", 1)[-1] if device == SSD else self._number(device)

    def sys_sectors(self, name: str) -> int:
        if name == "ssd":
            return self.ssd_sectors
        for volume in self.volumes.values():
            if volume.number == name:
                return volume.file.stat().st_size // SECTOR
        return self._disk(name).sectors

    def sys_is_suspended(self, device: str) -> bool:
        number = self._number(device)
        return self._mapping(self._named(number)).suspended

    def sys_mapper_name(self, device: str) -> str:
        number = self._number(device)
        return next((one.name for one in self.mappings.values() if one.number == number), "")

    def sys_loop_of(self, path: str, offset: int = 0) -> str | None:
        there = path.startswith("/dev/") or Path(path).exists()
        for name, one in self.loops.items():
            if (one.path, one.offset) == (path, offset) and there:
                return name
        return None

    def sys_idle_loops(self) -> list[tuple[str, int]]:
        held = {number for one in self.mappings.values() for number in one.below}
        return [(one.path, one.offset) for one in self.loops.values() if one.number not in held]

    def sys_storages(self) -> dict[str, str]:
        return {lun.storage: lun.device for one in self._targets() for lun in one.luns.values()}

    def sys_disk(self, iqn: str, lun: int) -> str | None:
        return next(
            (
                one.disks[lun].name
                for one in self.sessions
                if one.key[2] == iqn and lun in one.disks
            ),
            None,
        )

    def sys_disk_number(self, name: str) -> str:
        return self._disk(name).number

    def sys_session_of(self, device_number: str) -> Portal | None:
        for one in self.sessions:
            if any(disk.number == device_number for disk in one.disks.values()):
                return Portal(*one.key)
        return None

    def sys_session_in_use(self, iqn: str) -> bool:
        return any(one.key[2] == iqn and self._holds(one) for one in self.sessions)

    def sys_disks_run(self, device_number: str) -> bool:
        """Tell whether all disks below a device are still served."""
        below = self._all_below(device_number)
        return all(
            not session.is_cut
            and session.key in self.network.targets
            and lun in self.network.targets[session.key].luns
            for session in self.sessions
            for lun, disk in session.disks.items()
            if disk.number in below
        )

    def sys_mapped_name(self, device_number: str) -> str:
        return self._names()[device_number]

    def sys_is_cut_off(self, iqn: str) -> bool:
        return any(
            one.key[2] == iqn and (one.is_cut or one.key not in self.network.targets)
            for one in self.sessions
        )

    def sys_unacknowledging(self) -> set[tuple[str, int]]:
        peers = {one.key[:2] for one in self.sessions if not one.is_cut}
        return self.network.silent & peers

    def sys_sent(self, iqn: str) -> int:
        return sum(one.sent for one in self._targets() if one.iqn == iqn)

    def sys_dirty(self, bcache: str) -> int:
        return self._member(bcache).dirty

    def sys_identity(self, device: str) -> str:
        number = self._number(device)
        return next((one.identity for one in self.volumes.values() if one.number == number), "")

    def sys_block_size(self, device: str) -> int:
        return 512

    def sys_cache_reads(self, bcache: str) -> tuple[int, int, int]:
        return self._member(bcache).reads

    def sys_session_to(self, iqn: str) -> Portal | None:
        return next((Portal(*one.key) for one in self.sessions if one.key[2] == iqn), None)

    def sys_idle_sessions(self) -> list[Portal]:
        return [Portal(*one.key) for one in self.sessions if not self._holds(one)]

    def sys_is_held(self, name: str) -> bool:
        number = self._member(name).number if name in self.members else name
        return any(number in one.below for one in self.mappings.values())

    def sys_bcache_over(self, device: str) -> str | None:
        number = self._number(device)
        found = (name for name, one in self.members.items() if one.backing == number)
        return next((name for name in found if not self.members[name].waits), None)

    def sys_awaits_cache(self, device: str) -> bool:
        return any(one.waits for one in self.members.values()
                   if one.backing == self._number(device))  # fmt: skip

    def sys_is_clean(self, device: str) -> bool:
        number = self._number(device)
        return any(one.backing == number and not one.dirty for one in self.members.values())

    def sys_cache_set_on(self, device: str) -> str | None:
        number = self._number(device)
        return next((name for name, one in self.cache_sets.items() if one.device == number), None)

    def sys_members(self, cache_set: str) -> list[str]:
        return [name for name, one in self.members.items() if one.cache_set == cache_set]

    def sys_has_cache(self, bcache: str) -> bool:
        return self._member(bcache).cache_set is not None

    # The rest is inside.

    def _names(self) -> dict[str, str]:
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
        return names | {_SSD_NUMBER: SSD}

    def _live(self) -> list[Loop]:
        return list(self.loops.values())

    def _targets(self) -> list[Target]:
        return [one for one in self.network.targets.values() if one.kernel is self]

    def _target(self, iqn: str) -> list[Target]:
        found = [one for one in self._targets() if one.iqn == iqn]
        if not found:
            raise OSError(errno.ENOENT, f"there is no {iqn}")
        return found

    def _mapping(self, name: str) -> Mapping:
        if name not in self.mappings:
            raise OSError(errno.ENXIO, f"there is no {name}")
        return self.mappings[name]

    def _member(self, name: str) -> Member:
        """Return a bcache device, known by its name or its backing device's number."""
        for known, one in self.members.items():
            if name in (known, one.backing):
                return one
        raise OSError(errno.ENOENT, f"there is no {name}")

    def _read_ahead(self, path: str) -> int:
        """Return how far who opens a device or file now reads ahead."""
        mapping = self.mappings.get(path.removeprefix("/dev/mapper/"))
        return mapping.read_ahead if mapping else Mapping.read_ahead

    def _number(self, device: str) -> str:
        found = self._by_node(device)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", device)
        return found

    def _by_node(self, device: str) -> str | None:
        name = device.rsplit("/", 1)[-1]
        if name.startswith("dm-"):
            numbers = [one.number for one in self.mappings.values()]
            return next((one for one in numbers if one.endswith(f":{name[3:]}")), None)
        if device.startswith("/dev/mapper/"):
            return self.mappings[name].number if name in self.mappings else None
        if device in self.loops:
            return self.loops[device].number
        if name in self.members and device == f"/dev/{name}":
            return self.members[name].number
        if device in self.volumes:
            return self.volumes[device].number
        return _SSD_NUMBER if device == SSD else None

    def _disk(self, name: str) -> Disk:
        for session in self.sessions:
            for disk in session.disks.values():
                if disk.name == name:
                    return disk
        raise FileNotFoundError(errno.ENOENT, name)

    def _holds(self, session: Session) -> bool:
        """Tell whether anything lies on a disk of the session."""
        held = {number for one in self.mappings.values() for number in one.below}
        return any(disk.number in held for disk in session.disks.values())

    def _check_table(
        self, table: list[tuple[int, int, str, str]], read_only: bool, own: str = ""
    ) -> None:
        sizes, write_protected = self._sizes(), self._write_protected()
        end = 0
        for start, length, target, parameters in table:
            words = parameters.split()
            numbers = _NUMBER.findall(parameters)
            if start != end or length <= 0:
                raise OSError(errno.EINVAL, "a table without gaps was expected")
            end = start + length
            if own in numbers:
                raise OSError(errno.ELOOP, "a device cannot lie on itself")
            if not sizes.keys() >= set(numbers):
                raise OSError(errno.ENXIO, f"{target}: there is none of {numbers}")
            offset = int(words[1]) if target == "linear" else 0
            first, last = _ORIGIN.get(target, (0, None))
            if any(sizes[n] < offset + length for n in numbers[first:last]):
                raise OSError(errno.EINVAL, f"{target}: too small")
            written = numbers[1:] if target == "snapshot" else numbers
            if not read_only and write_protected & set(written):
                raise OSError(errno.EACCES, f"{target}: read-only")
            if target == "verity":
                _check_verity(read_only, sizes[numbers[1]], int(words[5]))
            self._check_target(target, numbers, own)
            if _SSD_NUMBER in self._under(numbers) and target == "linear":
                self._check_extent(own, numbers, offset, length)

    def _check_target(self, target: str, numbers: list[str], own: str) -> None:
        if target.startswith("snapshot") and self._is_cow_elsewhere(numbers[1], own):
            raise OSError(errno.EINVAL, f"{target}: the store is another device's")
        if target == "cache":
            self._check_metadata(numbers)

    def _begin_stores(self, table: list[tuple[int, int, str, str]]) -> None:
        """dm-snapshot takes a device that begins with zeros for a new store."""
        used = {number for row in table if row[2] == "snapshot" for number in row[3].split()}
        for volume in self.volumes.values():
            if volume.number in used and not any(volume.file.read_bytes()[:4]):
                _hold(volume.file, {})

    def _check_metadata(self, numbers: list[str]) -> None:
        """dm-cache takes metadata that it finds for those of what lies below now."""
        (meta,) = (one for one in self.mappings.values() if one.number == numbers[0])
        if not meta.wiped:
            self.harm.append(f"{meta.name} was used with what it held")
        meta.wiped = False

    def _check_extent(self, own: str, numbers: list[str], offset: int, length: int) -> None:
        for one in self.mappings.values():
            for _, size, _, words in one.table if one.number != own else []:
                number, _, start = words.partition(" ")
                if (
                    number in numbers
                    and int(start) < offset + length
                    and offset < int(start) + size
                ):
                    self.harm.append(f"an extent of {one.name} was given to another")

    def _under(self, numbers: list[str]) -> set[str]:
        return {n for one in self.mappings.values() if one.number in numbers for n in one.below}

    def _is_cow_elsewhere(self, cow: str, own: str) -> bool:
        return any(
            row[2].startswith("snapshot") and _NUMBER.findall(row[3])[1] == cow
            for one in self.mappings.values()
            if one.number != own
            for row in one.table
        )

    def _sizes(self) -> dict[str, int]:
        sizes = {one.number: one.sectors for one in self.mappings.values()}
        for session in self.sessions:
            sizes |= {disk.number: disk.sectors for disk in session.disks.values()}
        for one in self.loops.values():
            number = self._by_node(one.path)
            whole = sizes[number] * SECTOR if number else os.stat(one.path).st_size
            sizes[one.number] = (whole - one.offset) // SECTOR
        for volume in self.volumes.values():
            sizes[volume.number] = volume.file.stat().st_size // SECTOR
        for member in self.members.values():
            sizes[member.number] = sizes.get(member.backing, 0) - 2048
        return sizes | {_SSD_NUMBER: self.ssd_sectors}

    def _write_protected(self) -> set[str]:
        return (
            {one.number for one in self.mappings.values() if one.read_only}
            | {one.number for one in self.loops.values() if one.read_only}
            | {disk.number for one in self.sessions for disk in one.disks.values()}
        )

    def _is_used(self, number: str, node: str) -> bool:
        return (
            node in self.held
            or any(number in one.below for one in self.mappings.values())
            or any(one.path == node for one in self.loops.values())
            or any(lun.device == node for one in self._targets() for lun in one.luns.values())
            or any(one.backing == number for one in self.members.values())
            or any(one.device == number for one in self.cache_sets.values())
        )

    def _all_below(self, device_number: str) -> set[str]:
        """Numbers of all that a device lies on, through device-mapper devices."""
        direct = {n for one in self.mappings.values() if one.number == device_number
                  for n in one.below}  # fmt: skip
        return direct | {n for below in direct for n in self._all_below(below)}

    def _must_be_free(self, device: str) -> None:
        if self._is_used(self._number(device), device):
            raise OSError(errno.EIO, f"make-bcache: {device} is busy")

    def _superblock_file(self, number: str) -> Path:
        (first, *_) = next(one for one in self.mappings.values() if one.number == number).below
        return next(Path(one.path) for one in self.loops.values() if one.number == first)

    def _write_superblock(self, number: str, uuid: str, cache_set: str) -> None:
        with open(self._superblock_file(number), "r+") as file:
            file.write(f"{_SUPERBLOCK}:{uuid}:{cache_set}:".ljust(100, "\0"))

    def _fill(self, device: Mapping) -> None:
        """Let the cache have an image's data once its member lies on the image."""
        image = device.name.split("_")[1]
        content = self.network.contents.get(image, image)
        for one in self.members.values():
            if one.backing == device.number and one.cache_set and device.table[-1][2] == "linear":
                held = self.ssd.holds[one.uuid]
                if held not in ("", content):
                    self.harm.append(f"{device.name}: {held} was served for {content}")
                self.ssd.holds[one.uuid] = content

    def _settle(self) -> None:
        """Let go of what waited only for its last user."""
        for name, one in list(self.loops.items()):
            if one.going and not self._is_used(one.number, name):
                del self.loops[name]
        for name, member in list(self.members.items()):
            if member.going and not self._is_used(member.number, f"/dev/{name}"):
                del self.members[name]


def _reworded(row: tuple[int, int, str, str]) -> tuple[int, int, str, str]:
    """Return a row as the kernel prints it."""
    if row[2] != "multipath":
        return row
    words = row[3].replace(
        "3 queue_if_no_path queue_mode bio",
        "4 queue_if_no_path retain_attached_hw_handler queue_mode bio",
    )
    return (*row[:3], re.sub(r"service-time 0 1 1 (\S+) 1", r"service-time 0 1 2 \1 1 1", words))


def _check_verity(read_only: bool, hash_sectors: int, blocks: int) -> None:
    """Refuse what dm-verity refuses, such as a hash device shorter than the tree."""
    if not read_only:
        raise OSError(errno.EINVAL, "verity: read-only, or not at all")
    total = 0
    while blocks > 1:
        blocks = -(-blocks // 128)
        total += blocks
    if hash_sectors < total * 8:
        raise OSError(errno.E2BIG, "verity: the hash device is too small")


def _with_queueing(row: tuple[int, int, str, str], on: bool) -> tuple[int, int, str, str]:
    if row[2] != "multipath":
        return row
    plain = row[3].replace("4 queue_if_no_path ", "3 ")
    return (*row[:3], plain.replace("3 ", "4 queue_if_no_path ", 1) if on else plain)


def _hold(path: Path, held: dict[int, str]) -> None:
    with open(path, "r+b") as file:
        file.write(json.dumps(held).encode().ljust(16 * 1024, b"\0"))


class _Sockets:
    """Stands for the ``socket`` module: only what is served answers."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def create_connection(self, address: tuple[str, int], timeout: float) -> _Sockets:
        if not any((one[0], one[1]) == address for one in list(self.network.targets)):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        return self

    def close(self) -> None:
        pass


_PREFIXES = (
    (dm, "dm"), (loop, "loop"), (iscsi, "iscsi"), (lio, "lio"), (bcache, "bcache"),
    (kernel, "kernel"), (sockets, "sockets"), (ssd, "ssd"), (flashcache, "flashcache"),
    (lvm, "lvm"), (device, "device"), (block, "block"),
    (chunks, "chunks"),
)  # fmt: skip


class SimulatedKernels(fixtures.Fixture):
    """Puts simulated kernels where the root verbs and the look-ups are."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()

    def _setUp(self) -> None:
        for module, prefix in _PREFIXES:
            self._replace(module, prefix, _verb)
        self._replace(sysfs, "sys", _look_up)
        self.useFixture(fixtures.MockPatchObject(path_layer, "socket", _Sockets(self.network)))
        start = threading.Thread.start

        def start_in_same_process(thread: threading.Thread) -> None:
            process, run = getattr(_thread, "process", None), thread.run

            def run_there() -> None:
                _thread.process = process
                run()

            thread.run = run_there  # type: ignore[method-assign]
            start(thread)

        self.useFixture(fixtures.MonkeyPatch("threading.Thread.start", start_in_same_process))

    def _replace(
        self, module: object, prefix: str, make: Callable[[str, str], Callable[..., object]]
    ) -> None:
        for name in [name for name in vars(Kernel) if name.startswith(f"{prefix}_")]:
            verb = name.removeprefix(f"{prefix}_")
            assert hasattr(module, verb), name
            self.useFixture(fixtures.MockPatchObject(module, verb, make(name, verb)))


def _verb(name: str, verb: str) -> Callable[..., object]:
    def call(*arguments: object) -> object:
        process = current()
        with process.kernel.lock:
            process.passes(verb)
            process.kernel.log.append((verb, str(arguments[0]) if arguments else ""))
            return getattr(process.kernel, name)(*arguments)

    return call


def _look_up(name: str, verb: str) -> Callable[..., object]:
    def call(*arguments: object) -> object:
        with current().kernel.lock:
            return getattr(current().kernel, name)(*arguments)

    return call
