"""How soon servers of one image or snapshot run in a real OpenStack, with VirtMan and without.

On a bed of its own, with the same nodes and links for all. A server is ready once its guest, which
reads the data on its disk and writes some, has found all as it should be.
"""

import contextlib
import re
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from requests import RequestException

from bench.report import Progress, Step
from lab.errors import LabError
from lab.guest import GuestFailed, Report, guest_image
from lab.node import Node
from lab.openstack.bed import OpenStack
from lab.openstack.nodes import GUEST_DISK
from lab.openstack.servers import Servers, await_report
from lab.openstack.settings import GLANCE_FILES, Nova, login

BED = "bench-openstack"
FLAVOR = "bench"
EXTRA = 1 << 30  # bytes of an image that no guest reads: programs and data of other servers
LEFT = 120.0  # seconds after which what is left of servers stays so


@dataclass(frozen=True)
class Mode:
    """One way to boot servers.

    :ivar volume_type: by which a request chooses the way; None for a plain image
    :ivar has_warm: what the first servers brought helps the next ones
    """

    nova: Nova
    volume_type: str | None = None
    has_warm: bool = True


MODES = {
    "stock": Mode(Nova.STOCK, "lvm", has_warm=False),
    "virtman": Mode(Nova.PATCHED, "virtman"),
    "stock-image": Mode(Nova.STOCK),
    "driver": Mode(Nova.DRIVER),
}
ALONE = "libvirt"
FIGURES = (
    "last_active_s",
    "last_ready_s",
    "right",
    "cinder_calls",
    "glance_calls",
    "placement_calls",
    "downloads",
    "volumes",
    "storage_sent_bytes",
)

# A line of uWSGI's about one request.
_REQUEST = re.compile(r"\] (\S+) \(\) .* (GET|POST|PUT|PATCH|DELETE) (/\S*) =>")


def measure(
    modes: Sequence[str], servers: int, link_rate: str | None, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Yield one entry of ``runs`` after another; a mode that fails has one that says why.

    :param modes: names of MODES; with "driver" also what libvirt and QEMU alone take
    :param link_rate: of each node's link, such as "100M"; None for no limit
    """
    cloud = OpenStack(BED, use_cachegroup=False, link_rate=link_rate)  # stock is stock
    step = progress.step("OpenStack", 1)
    with cloud.bed:
        cloud.start(nova=MODES[modes[0]].nova)
        size = ("--disk", str(1 + 2 * EXTRA // (1 << 30)), "--ram", "96", "--vcpus", "1")
        cloud.client("flavor", "create", FLAVOR, *size)
        step.advance(1)
        for name in modes:
            way = _Way(cloud, name, servers, progress)
            yield from attempted(way.measure(), way.failed)


def attempted(
    runs: Iterable[dict[str, Any]], failed: Callable[[Exception], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield runs; if what makes them fails, what is said of that is the last one."""
    try:
        yield from runs
    except (LabError, RequestException) as err:
        yield failed(err)


def ratios(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what the runs of one bed say about each other, as far as they are there."""
    found = {(one["mode"], one["image"]): one for one in runs if "failed" not in one}

    def ratio(figure: str, of: tuple[str, str], to: tuple[str, str]) -> float | None:
        if of not in found or to not in found or not found[to][figure]:
            return None
        return round(float(found[of][figure]) / float(found[to][figure]), 2)

    new, warm = ("driver", "new"), ("driver", "warm")
    all_of_them = {
        "driver_over_stock_image_new_active": ratio("last_active_s", new, ("stock-image", "new")),
        "driver_over_stock_image_new_ready": ratio("last_ready_s", new, ("stock-image", "new")),
        "driver_over_libvirt_warm_active": ratio("last_active_s", warm, (ALONE, "warm")),
        "driver_over_libvirt_warm_ready": ratio("last_ready_s", warm, (ALONE, "warm")),
    }
    return {name: value for name, value in all_of_them.items() if value is not None}


class _Way:
    """The runs of one mode."""

    def __init__(self, cloud: OpenStack, name: str, count: int, progress: Progress) -> None:
        self._cloud = cloud
        self._name = name
        self._mode = MODES[name]
        self._count = count
        self._progress = progress
        self._servers = Servers(cloud)
        self._storage = cloud.nodes.storage
        self._doing = (name, "new")
        self._image: str | None = None  # Glance's, until it is deleted
        # What earlier modes left behind.
        self._left: Sequence[str] = ()
        self._volumes: Set[str] = frozenset()
        self._earlier: Set[str] = frozenset()

    def measure(self) -> Iterator[dict[str, Any]]:
        """Boot servers of what is new, once more of what is warm, and delete all of them."""
        self._left = self._servers.left()
        self._volumes = {one.id for one in self._servers.volumes()}
        self._earlier = {one.id for one in self._servers.all()}
        if self._cloud.settings.nova is not self._mode.nova:
            self._cloud.switch(self._mode.nova)
        source = self._source()
        made, run = self._storm(source, "new")
        if self._mode.has_warm:
            yield run
            self._doing = (self._name, "warm")
            self._keep_one_a_node(made)
            made, run = self._storm(source, "warm")
        is_driver = self._mode.nova is Nova.DRIVER
        guests = [(self._servers.node(one), self._description(one)) for one in made if is_driver]
        run["left"] = self._end()
        yield run
        if is_driver:
            self._doing = (ALONE, "warm")
            yield _Alone(guests, self._progress).measure()

    def failed(self, err: Exception) -> dict[str, Any]:
        """Delete what is there; return a run that says why there are no figures."""
        mode, image = self._doing
        run = {"mode": mode, "servers": self._count, "image": image, **dict.fromkeys(FIGURES)}
        return run | {"left": self._end(), "failed": str(err)}

    def _source(self) -> str:
        """Return the id of what the servers boot from: Cinder's snapshot, or an image that is new.

        Glance has the image from the storage node itself, whose link is left alone.
        """
        if self._mode.volume_type is not None:
            return self._servers.snapshot()
        raw, file = f"{GLANCE_FILES}/bench.raw", f"{GLANCE_FILES}/bench.qcow2"
        node = self._storage
        size = int(node.run(["blockdev", "--getsize64", GUEST_DISK]).stdout)
        for command in (
            ["dd", f"if={GUEST_DISK}", f"of={raw}", "bs=1M", "conv=sparse", "status=none"],
            ["dd", "if=/dev/urandom", f"of={raw}", "bs=1M", f"count={EXTRA >> 20}",
             f"seek={-(-size >> 20)}", "conv=notrunc", "status=none"],
            ["qemu-img", "convert", "-O", "qcow2", raw, file],
            ["rm", raw],
        ):  # fmt: skip
            node.run(command, timeout=600)
        client = str(self._cloud.settings.control.program("openstack"))
        kind = ["--disk-format", "qcow2", "--container-format", "bare", "--file", file]
        variables = self._cloud.settings.control.variables() | login("admin", "demo")
        words = [f"{name}={value}" for name, value in variables.items()]
        node.run(["env", *words, client, "image", "create", *kind, self._name], timeout=600)
        node.run(["rm", file])
        self._image = str(self._cloud.client("image", "show", self._name)["id"])
        return self._image

    def _storm(self, source: str, image: str) -> tuple[list[str], dict[str, Any]]:
        """Boot servers; return their ids and what it took."""
        step = self._progress.step(f"{self._name}, {image}", self._count)
        known = {one.id for one in self._servers.all()}
        before = self._figures()
        made: list[str] = []

        def boot() -> list[Callable[[], Report]]:
            self._ask(source)
            made.extend(one.id for one in self._servers.all() if one.id not in known)
            self._servers.wait(made, "ACTIVE", 1800)
            return [partial(self._servers.report, one) for one in made]

        run = {"mode": self._name, "servers": self._count, "image": image} | _timed(boot, step)
        after = self._figures()
        run |= {name: after[name] - before[name] for name in after}
        volumes = {one.id for one in self._servers.volumes()} - self._volumes
        return made, run | {"volumes": len(volumes), "left": []}

    def _ask(self, source: str) -> None:
        kind = self._mode.volume_type
        if kind is None:
            answer = self._servers.ask_plain(source, self._name, self._count, FLAVOR)
        else:
            answer = self._servers.ask(source, self._name, self._count, kind)
        answer.raise_for_status()

    def _figures(self) -> dict[str, int]:
        """Return counters: what services were asked so far, and what the storage node sent."""
        glance = _requests(self._storage.share / "glance.out")
        logs = self._cloud.settings.logs
        return {
            # But for the looks of virtman-golden at all volumes.
            "cinder_calls": sum(
                not (
                    address == self._storage.address
                    and method == "GET"
                    and "volumes/detail" in path
                )
                for address, method, path in _requests(logs / "cinder-api.out")
            ),
            "glance_calls": len(glance),
            "placement_calls": len(_requests(logs / "placement.out")),
            "downloads": sum(
                method == "GET" and path.endswith("/file") for _, method, path in glance
            ),
            "storage_sent_bytes": self._storage.sent_bytes(),
        }

    def _keep_one_a_node(self, servers: Sequence[str]) -> None:
        """Delete servers but one on each node, so that what they brought stays there."""
        kept = {self._servers.show(one).host: one for one in servers}
        self._servers.delete(*set(servers).difference(kept.values()))

    def _description(self, server: str) -> str:
        return self._servers.node(server).run(["virsh", "dumpxml", "--inactive", server]).stdout

    def _end(self) -> list[str]:
        """Delete what this mode made; return what is left of it after a while, or cannot go."""
        try:
            mine = {one.id for one in self._servers.all()} - self._earlier
            self._servers.delete(*mine)
            if self._image is not None:
                self._cloud.order("image", "delete", self._image)
                self._image = None
            with contextlib.suppress(GuestFailed):
                self._servers.wait_nothing_left(LEFT, self._left)
            return self._servers.left(self._left)
        except (LabError, RequestException) as err:
            return [f"it cannot be deleted: {err}"]


class _Alone:
    """The same guests by libvirt and QEMU alone, of files that are there."""

    def __init__(self, guests: Sequence[tuple[Node, str]], progress: Progress) -> None:
        self._guests = guests
        self._progress = progress

    def measure(self) -> dict[str, Any]:
        """Start all at once, and end them."""
        step = self._progress.step(ALONE, len(self._guests))
        for node in {node.name: node for node, _ in self._guests}.values():
            (node.share / "alone").mkdir()
            base = str(node.share / "alone/base")
            subprocess.run(["cp", "--sparse=always", str(guest_image()), base], check=True)
        names = [str(uuid.uuid4()) for _ in self._guests]
        for name, (node, text) in zip(names, self._guests, strict=True):
            _prepare(node, name, text)
        nodes = [node for node, _ in self._guests]

        def boot() -> list[Callable[[], Report]]:
            with ThreadPoolExecutor(len(names)) as pool:
                list(pool.map(_start, nodes, names))
            logs = [
                node.share / f"alone/{name}.log" for node, name in zip(nodes, names, strict=True)
            ]
            return [partial(await_report, log) for log in logs]

        took = _timed(boot, step)
        for node, name in zip(nodes, names, strict=True):
            node.run(["virsh", "destroy", name])
        for node in nodes:
            node.run(["rm", "-rf", "/host/alone"])
        return {
            "mode": ALONE,
            "servers": len(names),
            "image": "warm",
            **(dict.fromkeys(FIGURES, 0) | took),
            "left": [],
        }


def _timed(boot: Callable[[], Iterable[Callable[[], Report]]], step: Step) -> dict[str, Any]:
    """Return how long guests take until they run, and until all have found their data.

    :param boot: returns once they run what waits for each one's word
    """
    began = time.monotonic()
    waits = boot()
    active = time.monotonic() - began
    right = True
    for wait in waits:
        right &= wait().ok
        step.advance(1)
    ready = time.monotonic() - began
    return {"last_active_s": round(active, 1), "last_ready_s": round(ready, 1), "right": right}


def _prepare(node: Node, name: str, text: str) -> None:
    """Make a guest's disk, and describe the guest by what nova said of one."""
    disk, log = f"/host/alone/{name}.qcow2", f"/host/alone/{name}.log"
    overlay = ["-b", "/host/alone/base", "-F", "raw", disk]
    node.run(["qemu-img", "create", "-q", "-f", "qcow2", *overlay])
    guest = ElementTree.fromstring(text)  # noqa: S314  # libvirt said it
    # Libvirt wants the same UUID in both places.
    for path in ("name", "uuid", "sysinfo/system/entry[@name='uuid']"):
        for found in guest.iterfind(path):
            found.text = name
    (root,) = guest.iterfind("devices/disk")
    root.set("type", "file")
    for driver in root.iterfind("driver"):
        driver.attrib = {"name": "qemu", "type": "qcow2"}
    for source in root.iterfind("source"):
        source.attrib = {"file": disk}
    for console in guest.iterfind("devices/*/log"):
        console.set("file", log)
    (node.share / f"alone/{name}.xml").write_text(ElementTree.tostring(guest, "unicode"))


def _start(node: Node, name: str) -> None:
    node.run(["virsh", "create", f"/host/alone/{name}.xml"], timeout=300)


def requests_in(log: str) -> list[tuple[str, str, str]]:
    """Return the requests of which uWSGI's log tells: from where, how, and for what."""
    return _REQUEST.findall(log)


def _requests(log: Path) -> list[tuple[str, str, str]]:
    return requests_in(log.read_text(errors="replace"))
