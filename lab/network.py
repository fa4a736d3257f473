"""A bed's network: everything in one network namespace of its own.

    namespace virtman-lab-<bed>

      lab0 10.78.0.254/24 -- Volt and clients
       |
       +- down1 ==tbf== up1 - br1 - tap1 - node1 10.78.0.1
       +- down2 ==tbf== up2 - br2 - tap2 - node2 10.78.0.2

A token bucket on each end of a node's veth pair shapes what it receives and
sends. There is no way out: nothing routes, and no link leaves the namespace.
"""

import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyroute2 import IPRoute, netns

from lab.errors import LabError

ADDRESS = "10.78.0.254"
BRIDGE = "lab0"
MAX_NODES = 250
BURST = 256 * 1024  # bytes; above the 64 KiB of one segmentation offload packet
FOLDER = Path("/run/netns")

Endpoint = tuple[str, int]


def bytes_per_second(rate: str) -> int:
    """Return what a rate as tc writes it, such as 100mbit or 100M, is in bytes a second."""
    match = re.fullmatch(r"(\d+)([kmg])(bit)?", rate.lower())
    if match is None or int(match[1]) == 0:
        raise LabError(f"a link rate reads like 800kbit, 100mbit, 100M or 1gbit, not {rate!r}")
    return int(match[1]) * {"k": 10**3, "m": 10**6, "g": 10**9}[match[2]] // 8


def short(rate: str) -> str:
    """Return a rate as few letters tell it: 100M for 100mbit."""
    return rate.lower().removesuffix("bit").upper()


def node_address(index: int) -> str:
    """Return the address of a bed's node, counted from 1."""
    return f"10.78.0.{index}"


def node_mac(index: int) -> str:
    """Return a node's hardware address; fixed, so that a restart leaves no stale neighbours."""
    return f"02:78:00:00:00:{index:02x}"


class Network:
    """The network of one bed."""

    def __init__(self, bed: str):
        self.namespace = f"virtman-lab-{bed}"
        self.path = FOLDER / self.namespace

    def exists(self) -> bool:
        """Tell whether the namespace is there."""
        return self.path.exists()

    def inode(self) -> int | None:
        """Return what identifies the namespace in /proc/PID/ns, or None without one."""
        return self.path.stat().st_ino if self.exists() else None

    def up(self) -> None:
        """Make the namespace and its main bridge."""
        netns.create(self.namespace)
        with self.inside():
            _disable_ipv6()
            with IPRoute() as links:
                links.link("set", index=_index(links, "lo"), state="up")
                bridge = _add_bridge(links, BRIDGE)
                links.addr("add", index=bridge, address=ADDRESS, prefixlen=24)

    def down(self) -> None:
        """Remove the namespace; every link in it goes with it. No error if there is none."""
        with suppress(FileNotFoundError):
            netns.remove(self.namespace)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Put this thread, and no other, into the namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            netns.setns(str(self.path), flags=0)
            try:
                yield
            finally:
                netns.setns(home)
        finally:
            os.close(home)

    def command(self, argv: list[str]) -> list[str]:
        """Return the command that runs `argv` inside; it stays the same process."""
        return ["nsenter", f"--net={self.path}", "--", *argv]

    def open_socket(self) -> socket.socket:
        """Return a TCP socket that lives inside, wherever it is used."""
        with self.inside():
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)

    def connect(self, to: Endpoint, timeout: float) -> socket.socket:
        """Connect to an address inside."""
        sock = self.open_socket()
        sock.settimeout(timeout)
        try:
            sock.connect(to)
        except BaseException:
            sock.close()
            raise
        return sock

    def add_node(self, index: int, rate: str | None) -> None:
        """Make a node's TAP, bridge and veth pair, shaped to `rate` both ways."""
        with self.inside(), IPRoute() as links:
            main = _index(links, BRIDGE)
            bridge = _add_bridge(links, f"br{index}")
            links.link("add", ifname=tap(index), kind="tuntap", mode="tap")
            links.link("add", ifname=f"up{index}", kind="veth", peer={"ifname": f"down{index}"})
            for name, master in (
                (tap(index), bridge),
                (f"up{index}", bridge),
                (f"down{index}", main),
            ):
                links.link("set", index=_index(links, name), master=master, state="up")
            if rate is not None:
                for name in (f"up{index}", f"down{index}"):
                    _shape(links, _index(links, name), bytes_per_second(rate))

    def set_link(self, index: int, state: str) -> None:
        """Set a node's veth pair `up` or `down`; its own interface keeps its carrier."""
        with self.inside(), IPRoute() as links:
            links.link("set", index=_index(links, f"up{index}"), state=state)

    def counters(self, index: int) -> tuple[int, int]:
        """Return how many bytes a node has sent and received, since its link was made."""
        with self.inside(), IPRoute() as links:
            (link,) = links.get_links(_index(links, tap(index)))
            stats = link.get_attr("IFLA_STATS64")
        return stats["rx_bytes"], stats["tx_bytes"]


def tap(index: int) -> str:
    """Return the name of a node's TAP device."""
    return f"tap{index}"


def _index(links: IPRoute, name: str) -> int:
    found = links.link_lookup(ifname=name)
    if not found:
        raise LabError(f"the bed has no link {name}")
    return int(found[0])


def _add_bridge(links: IPRoute, name: str) -> int:
    """Make a bridge that forwards at once and sends nothing of its own."""
    links.link(
        "add", ifname=name, kind="bridge", br_stp_state=0, br_forward_delay=0, br_mcast_snooping=0
    )
    index = _index(links, name)
    links.link("set", index=index, state="up")
    return index


def _shape(links: IPRoute, index: int, rate: int) -> None:
    links.tc("add", "tbf", index, rate=rate, burst=BURST, latency="100ms")


def _disable_ipv6() -> None:
    """Keep neighbour discovery out of the byte counts; a kernel without IPv6 has none."""
    for scope in ("all", "default"):
        try:
            Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6").write_text("1")
        except OSError as err:
            if err.errno not in (errno.ENOENT, errno.EROFS):
                raise
