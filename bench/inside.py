"""What the bench runs inside a node: ``python3 -m bench.inside VERB ...`` prints JSON.

create IMAGE VM...      create VMs one after another through the local API
bare DEVICE SIZE VM...  tables and stores over a device like those of VMs, by the tools that
                        administrators use
remove VM...            take those of ``bare`` away
processor               print the processor seconds that the agent's processes have taken
images TIMES            ask the agent for its images so many times; print the seconds of each
replay DEVICE TRACE     read a device as a boot did, with its pauses
reread DEVICE IMAGE PIECES SEED
                        read so many pieces of 64 KiB at random; page caches keep nothing of them
serve DEVICE IP         serve a device to everybody, as LIO does without VirtMan
withdraw                serve it no more
login IP                log in to what another node serves so; print the disk
logout                  log out of it
cache DEVICE            put bcache before a read-only device; print the device to read, and to serve
uncache                 take that away
"""

import fcntl
import http.client
import json
import mmap
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

SOCKET = "/run/virtman/agent.sock"
ASK_EVERY = 0.5  # seconds between two questions to an agent
FOLDER = Path("/var/tmp/bare")  # noqa: S108  # a node is nobody else's
BARE = "iqn.2026-11.org.virtman.bench:bare"
PORT = 3270  # not that of VirtMan's targets

_FRONT = 2048  # sectors that bcache has before its data
_PARTS = {"front": "1M", "shim": "64M", "fast": "1G"}  # files of "cache"
_CACHED = ("bare-read", "bare-served")

# linux/genetlink.h, linux/taskstats.h
_GENERIC = 16
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_GET, _REGISTER, _AGGREGATE, _STATS = 1, 3, 4, 3
_COMMAND = slice(80, 112)
_PID, _PARENT = 128, 132
_GROUP_FROM_END = {12: 32, 13: 48}
"""Where a version of the kernel's record has the thread group."""
_KTHREADD = 2
_FLUSH, _FORGOTTEN = 0x1261, 16  # BLKFLSBUF of linux/fs.h, and after how many reads
_LINGER = 0.5
_SHORT = 0.004  # seconds: shorter pauses are taken together


class Exits:
    """Counts the processes that end, as the kernel tells: neither threads nor its own."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC)
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._ask(_CONTROL, _GET_FAMILY, _FAMILY_NAME, b"TASKSTATS\0")
        header = self._socket.recv(1 << 16)
        family = dict(_attributes(header[20:]))[_FAMILY_ID]
        self._ask(struct.unpack("=H", family)[0], _GET, _REGISTER, b"0-0\0")
        self._socket.recv(1 << 16)  # its acknowledgement
        self._found: Counter[str] = Counter()
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self) -> dict[str, int]:
        """Return how many ended since the last call, by command; give the last ones time to."""
        time.sleep(_LINGER)
        found, self._found = self._found, Counter()
        return dict(found)

    def _ask(self, family: int, command: int, attribute: int, value: bytes) -> None:
        padded = value.ljust(-(-len(value) // 4) * 4, b"\0")
        body = struct.pack("=BBxxHH", command, 1, len(value) + 4, attribute) + padded
        self._socket.send(struct.pack("=IHHII", len(body) + 16, family, 5, 1, 0) + body)

    def _listen(self) -> None:
        while True:
            for kind, value in _attributes(self._socket.recv(1 << 16)[20:]):
                if kind == _AGGREGATE:
                    self._count(dict(_attributes(value))[_STATS])

    def _count(self, stats: bytes) -> None:
        version = struct.unpack_from("=H", stats)[0]
        pid, parent = struct.unpack_from("=II", stats, _PID)
        group = struct.unpack_from("=I", stats, len(stats) - _GROUP_FROM_END[version])[0]
        if pid == group and parent not in (0, _KTHREADD):
            self._found[stats[_COMMAND].split(b"\0")[0].decode()] += 1


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[-(-length // 4) * 4 :]


class Agent(http.client.HTTPConnection):
    """A connection to the local API of the node's agent."""

    def connect(self) -> None:
        """Connect to the agent's socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)


def ask(method: str, path: str, body: object = None) -> Any:
    """Return what the agent answers; its errors end the program."""
    agent = Agent("localhost")
    agent.request(method, path, None if body is None else json.dumps(body))
    answer = agent.getresponse()
    text = answer.read()
    agent.close()
    if answer.status >= 400:
        raise SystemExit(text.decode())
    return json.loads(text)


def create(image: str, *vms: str) -> object:
    """Create VMs; return the seconds that each took, and what processes ended meanwhile."""

    def make(vm: str) -> None:
        agent = Agent("localhost")
        agent.request("PUT", f"/v1/instances/{vm}", json.dumps({"image": image}))
        answer = agent.getresponse()
        text = answer.read()
        if answer.status != http.client.CREATED:
            raise SystemExit(text.decode())
        agent.close()

    return _timed(make, vms)


def images(times: str) -> object:
    """Ask the agent for its images; return the seconds of each time.

    It takes a while, so that heartbeats, which look at all images too, come in between.
    """
    taken = []
    for _ in range(int(times)):
        time.sleep(ASK_EVERY)
        begun = time.monotonic()
        agent = Agent("localhost")
        agent.request("GET", "/v1/images")
        answer = agent.getresponse()
        answer.read()
        agent.close()
        if answer.status != http.client.OK:
            raise SystemExit(f"the agent answered {answer.status}")
        taken.append(time.monotonic() - begun)
    return taken


def bare(origin: str, size: str, *vms: str) -> object:
    """Make stores and tables like those of VMs over a device."""
    FOLDER.mkdir(exist_ok=True)
    sectors = int(size) // 512

    def make(vm: str) -> None:
        length = int(size) * 102 // 100 // 4096 * 4096 + (1 << 20)  # over blocks of 4 KiB, too
        store = _loop(vm, str(length))
        _run("dmsetup", "create", f"{vm}-store", "--table",
             f"0 {sectors} snapshot {origin} {store} P 128")  # fmt: skip
        _run("dmsetup", "create", vm, "--table", f"0 {sectors} linear /dev/mapper/{vm}-store 0")

    return _timed(make, vms)


def remove(*vms: str) -> object:
    """Take away what ``bare`` made."""
    for vm in vms:
        _run("dmsetup", "remove", vm)
        _run("dmsetup", "remove", f"{vm}-store")
        _unloop(vm)
    return None


def replay(device: str, trace: str) -> object:
    """Read a device as the trace says; return when each read began and how long it took."""
    reads = json.loads(Path(trace).read_text())
    opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
    memory = memoryview(mmap.mmap(-1, max(length for _, _, length in reads)))
    owed, taken = 0.0, []
    begin = time.monotonic()
    for pause, offset, length in reads:
        owed += pause
        if owed > _SHORT:
            slept = time.monotonic()
            time.sleep(owed)
            owed -= time.monotonic() - slept
        asked = time.monotonic()
        os.preadv(opened, [memory[:length]], offset)
        taken.append((asked - begin, time.monotonic() - asked))
    return taken


def reread(device: str, image: str, pieces: str, seed: str) -> object:
    """Read pieces at random; return how many seconds that took.

    What exports have of the image in memory is forgotten now and then, as if it were much larger.
    """
    dice, size = random.Random(seed), 64 * 1024  # noqa: S311 - no secret
    opened = os.open(device, os.O_RDONLY | os.O_DIRECT)
    exports = [os.open(one, os.O_RDONLY) for one in Path("/dev/mapper").glob(
        f"virtman_{image}_export*")]  # fmt: skip
    memory = mmap.mmap(-1, size)
    length = os.lseek(opened, 0, os.SEEK_END) // size
    begin = time.monotonic()
    for number in range(int(pieces)):
        os.preadv(opened, [memory], dice.randrange(length) * size)
        if number % _FORGOTTEN == 0:
            for export in exports:
                fcntl.ioctl(export, _FLUSH)
    return time.monotonic() - begin


def serve(device: str, ip: str) -> object:
    """Serve a block device read-only, without a password."""
    from rtslib_fb import BlockStorageObject, FabricModule  # noqa: PLC0415
    from rtslib_fb.target import LUN, TPG, NetworkPortal, Target  # noqa: PLC0415

    group = TPG(Target(FabricModule("iscsi"), BARE), 1)
    for name in ("generate_node_acls", "demo_mode_write_protect"):
        group.set_attribute(name, 1)
    group.set_attribute("authentication", 0)
    LUN(group, 0, BlockStorageObject("bare", device, readonly=True))
    NetworkPortal(group, ip, PORT)
    group.enable = True
    return None


def login(ip: str) -> object:
    """Log in and return the disk."""
    before = set(Path("/sys/block").glob("sd*"))
    node = ["iscsiadm", "--mode", "node", "--targetname", BARE, "--portal", f"{ip}:{PORT}"]
    _run(*node, "--op", "new")
    _run(*node, "--login")
    while not (made := set(Path("/sys/block").glob("sd*")) - before):
        time.sleep(0.1)
    return f"/dev/{made.pop().name}"


def withdraw() -> object:
    """Remove what ``serve`` made."""
    from rtslib_fb import FabricModule, RTSRoot  # noqa: PLC0415
    from rtslib_fb.target import Target  # noqa: PLC0415

    Target(FabricModule("iscsi"), BARE, mode="lookup").delete()
    for storage in RTSRoot().storage_objects:
        if storage.name == "bare":
            storage.delete()
    return None


def logout() -> object:
    """Log out, and forget the other node."""
    node = ["iscsiadm", "--mode", "node", "--targetname", BARE]
    _run(*node, "--logout")
    _run(*node, "--op", "delete")
    return None


def cache(origin: str) -> object:
    """Cache all that is read of a device on a file of the node; return two devices over it.

    bcache wants a device that it can write its superblock to: a snapshot takes the writes. LIO has
    what it serves for itself.
    """
    FOLDER.mkdir(exist_ok=True)
    _run("modprobe", "bcache")
    size = int(_run("blockdev", "--getsz", origin))
    front, shim, fast = (_loop(name, length) for name, length in _PARTS.items())
    _run("dmsetup", "create", "bare-shim", "--table", f"0 {size} snapshot {origin} {shim} N 128")
    table = f"0 {_FRONT} linear {front} 0\n{_FRONT} {size} linear /dev/mapper/bare-shim 0"
    _run("dmsetup", "create", "bare-backing", "--table", table)
    backing = os.path.realpath("/dev/mapper/bare-backing")
    _run("make-bcache", "-B", backing, "--data-offset", str(_FRONT))
    made = _run("make-bcache", "-C", fast, "--bucket", "64k")
    cache_set = next(line.split()[-1] for line in made.splitlines() if "Set UUID" in line)
    folder = Path("/sys/block", backing.rpartition("/")[2], "bcache")
    for device, there in ((backing, folder), (fast, Path("/sys/fs/bcache", cache_set))):
        with suppress(OSError):  # udev may have been first
            Path("/sys/fs/bcache/register").write_text(device)
        while not there.exists():
            time.sleep(0.1)
    (folder / "attach").write_text(cache_set)
    (folder / "sequential_cutoff").write_text("0")
    for kind in ("read", "write"):
        Path("/sys/fs/bcache", cache_set, f"congested_{kind}_threshold_us").write_text("0")
    cached = f"/dev/{(folder / 'dev').resolve().name}"
    for name in _CACHED:
        _run("dmsetup", "create", name, "--table", f"0 {size} linear {cached} 0")
    return [f"/dev/mapper/{name}" for name in _CACHED]


def uncache() -> object:
    """Remove what ``cache`` made."""
    for name in _CACHED:
        _run("dmsetup", "remove", "--retry", name)
    backing = Path(os.path.realpath("/dev/mapper/bare-backing")).name
    folder = Path("/sys/block", backing, "bcache")
    cache_set = (folder / "cache").resolve()
    for one in (folder, cache_set):
        (one / "stop").write_text("1")
        while one.exists():
            time.sleep(0.1)
    for name in ("bare-backing", "bare-shim"):
        _run("dmsetup", "remove", "--retry", name)
    for name in _PARTS:
        _unloop(name)
    return None


def _loop(name: str, length: str) -> str:
    """Make a sparse file; return a loop device over it."""
    _run("truncate", "-s", length, str(FOLDER / name))
    return _run("losetup", "--find", "--show", str(FOLDER / name))


def _unloop(name: str) -> None:
    """Remove a loop device and its file."""
    _run("losetup", "--detach", _run("losetup", "-j", str(FOLDER / name)).split(":")[0])
    (FOLDER / name).unlink()


def memory() -> object:
    """Return the resident bytes of the agent's processes: all, and what each has for itself."""
    found = {"rss": 0, "pss": 0, "processes": 0}
    for folder in _agents():
        rollup = (folder / "smaps_rollup").read_text()
        found["processes"] += 1
        for name in ("rss", "pss"):
            match = re.search(rf"^{name}: +(\d+) kB", rollup, re.IGNORECASE | re.MULTILINE)
            found[name] += int(match[1]) * 1024 if match else 0
    return found


def processor() -> object:
    """Return the processor seconds that the agent's processes have taken, those of its root too."""
    taken = 0
    for folder in _agents():
        of_process = (folder / "stat").read_text().rpartition(")")[2].split()
        taken += int(of_process[11]) + int(of_process[12])  # utime and stime, proc(5)
    return taken / os.sysconf("SC_CLK_TCK")


def _agents() -> Iterator[Path]:
    """Yield where the kernel shows the agent's processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another process ends
            if b"virtman.cmd.agent" in (folder / "cmdline").read_bytes():
                yield folder


def _timed(make: Callable[[str], None], names: object) -> object:
    exits = Exits()
    exits.take()
    seconds = []
    for name in names:  # type: ignore[attr-defined]
        begin = time.monotonic()
        make(name)
        seconds.append(time.monotonic() - begin)
    return {"seconds": seconds, "processes": exits.take()}


def _run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    verb, *arguments = sys.argv[1:]
    verbs: dict[str, Callable[..., object]] = {
        "create": create, "images": images, "bare": bare, "remove": remove, "memory": memory,
        "processor": processor,
        "replay": replay, "reread": reread, "serve": serve,
        "withdraw": withdraw, "login": login, "logout": logout,
        "cache": cache, "uncache": uncache,
    }  # fmt: skip
    print(json.dumps(verbs[verb](*arguments)))
