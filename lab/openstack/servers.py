"""Servers of the cloud: asked for by openstackclient, and what their guests say of their disks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from lab.deployment import leftovers
from lab.errors import DeadlinePassed
from lab.guest import GuestFailed, Report, parse
from lab.node import Node
from lab.openstack.bed import OpenStack
from lab.openstack.nodes import GUEST_DISK, STORAGE
from lab.openstack.settings import MADE, SNAPSHOT
from lab.waiting import wait_until

ACTIVE = 300.0  # seconds
READY = 300.0


@dataclass(frozen=True)
class Server:
    """What Nova says of a server."""

    id: str
    name: str
    status: str
    host: str
    fault: str


@dataclass(frozen=True)
class Volume:
    """What Cinder says of a volume."""

    id: str
    name: str
    status: str


class Servers:
    """The servers of the project, all of which boot the guest of the lab."""

    def __init__(self, cloud: OpenStack) -> None:
        self.cloud = cloud

    def boot(
        self, name: str, count: int, source: Sequence[str] = ("--snapshot", SNAPSHOT)
    ) -> list[str]:
        """Ask for servers by VirtMan, in one request; return their ids."""
        where = [*source, "--flavor", "guest", "--network", "none", "--count", str(count)]
        made = self.cloud.client("virtman", "server", "create", *where, name)
        return [one["ID"] for one in made]

    def snapshot(self) -> str:
        """Return the id of the snapshot that servers boot from."""
        found = self.cloud.rest.get("block-storage", f"/snapshots?name={SNAPSHOT}")
        return str(found["snapshots"][0]["id"])

    def guest_as_image(self, name: str, *options: str, disk: str = GUEST_DISK) -> str:
        """Give Glance the guest's disk as an image; return the image's id.

        :param disk: that of another guest, as the storage node sees it
        """
        storage = self.cloud.nodes.storage
        file = storage.share / "guest.qcow2"
        convert = ["qemu-img", "convert", "-O", "qcow2", disk, "/host/guest.qcow2"]
        try:
            storage.run(convert, timeout=300)
            return self.make_image(name, file, *options)
        finally:
            file.unlink(missing_ok=True)

    def make_image(self, name: str, file: Path, *options: str) -> str:
        """Give Glance a file, which it is told is qcow2; return the image's id."""
        kind = ["--disk-format", "qcow2", "--container-format", "bare", "--file", str(file)]
        return str(self.cloud.client("image", "create", *kind, *options, name)["id"])

    def _flavor(self, name: str) -> str:
        flavors = self.cloud.rest.get("compute", "/flavors")["flavors"]
        (found,) = [one["id"] for one in flavors if one["name"] == name]
        return str(found)

    def ask(
        self, snapshot: str, name: str, count: int, volume_type: str, **changes: object
    ) -> requests.Response:
        """Ask Nova itself for servers of a snapshot; ``changes`` are to what their disk is."""
        disk = {
            "uuid": snapshot,
            "source_type": "snapshot",
            "destination_type": "volume",
            "boot_index": 0,
            "delete_on_termination": True,
            "volume_type": volume_type,
        }
        return self._ask(name, count, "guest", block_device_mapping_v2=[disk | changes])

    def ask_plain(self, image: str, name: str, count: int, flavor: str) -> requests.Response:
        """Ask Nova itself for servers of an image, as any program does."""
        return self._ask(name, count, flavor, imageRef=image)

    def _ask(self, name: str, count: int, flavor: str, **more: object) -> requests.Response:
        server = {
            "name": name,
            "flavorRef": self._flavor(flavor),
            "networks": "none",
            "min_count": count,
            "max_count": count,
        }
        return self.cloud.rest.ask("POST", "compute", "/servers", {"server": server | more})

    def order(self, verb: str, server: str, *options: str) -> None:
        """Have something done to a server, such as "resize confirm", without waiting for it."""
        self.cloud.order("server", *verb.split(), *options, server)

    def all(self) -> list[Server]:
        """Return all servers."""
        found = self.cloud.rest.get("compute", "/servers/detail")["servers"]
        return [_server(one) for one in found]

    def show(self, server: str) -> Server:
        """Return one server."""
        return _server(self.cloud.rest.get("compute", f"/servers/{server}")["server"])

    def wait(self, servers: Sequence[str], status: str, deadline: float = ACTIVE) -> list[Server]:
        """Wait until servers have a status and Nova does nothing with them any more."""
        found: list[Server] = []

        def there() -> bool:
            found[:] = [self.show(server) for server in servers]
            failed = [one for one in found if one.status.startswith("ERROR")]
            if failed and status != "ERROR":
                raise GuestFailed("; ".join(f"{one.name}: {one.fault}" for one in failed))
            return all(one.status == status for one in found)

        wait_until(there, f"{status} of {', '.join(servers)}", deadline, 0.5)
        return found

    def node(self, server: str) -> Node:
        """Return the node of a server."""
        return self.cloud.bed.node(self.show(server).host)

    def report(self, server: str, boots: int = 1, deadline: float = READY) -> Report:
        """Wait for what a guest says of its disk at its boot of this number.

        Raises GuestFailed if there is none in time.
        """
        return await_report(self.console(server), boots, deadline)

    def console(self, server: str) -> Path:
        """Return the file with what a guest wrote on its console, on its node of now."""
        return self.node(server).share / "instances" / server / "console.log"

    def delete(self, *servers: str) -> None:
        """Delete servers and wait until they are gone."""
        if servers:
            self.cloud.order("server", "delete", "--wait", *servers)

    def volumes(self) -> list[Volume]:
        """Return all projects' volumes but that of the guest."""
        found = self.cloud.rest.get("block-storage", "/volumes/detail?all_tenants=1")["volumes"]
        volumes = [Volume(one["id"], one["name"], one["status"]) for one in found]
        return [one for one in volumes if one.name != SNAPSHOT]

    def left(self, but: Sequence[str] = ()) -> list[str]:
        """Return what is left on any node or in Cinder: nothing, once no server is there.

        :param but: what was left before
        """
        found = [f"volume {one.name} is {one.status}" for one in self.volumes()]
        for node in self.cloud.bed.nodes.values():
            found += leftovers(node)
            found += [f"{node.name}: {line}" for line in _left_by_services(node)]
        return list((Counter(found) - Counter(but)).elements())

    def wait_nothing_left(self, deadline: float = 120.0, but: Sequence[str] = ()) -> None:
        """Wait until nothing is left, but what was before; an error names what is."""
        left: list[str] = []

        def nothing() -> bool:
            left[:] = self.left(but)
            return not left

        try:
            wait_until(nothing, "an empty cloud", deadline, 2)
        except DeadlinePassed as err:
            raise GuestFailed(f"{err}: {'; '.join(left)}") from err


def reports_in(console: Path) -> list[Report]:
    """Return what a guest has said on its console of its disk, boot by boot."""
    lines = console.read_text(errors="replace") if console.exists() else ""
    return [one for one in map(parse, lines.splitlines(keepends=True)) if one]


def await_report(console: Path, boots: int = 1, deadline: float = READY) -> Report:
    """Wait for what a guest says on its console of its disk at its boot of this number.

    Raises GuestFailed with the console's path if there is none in time.
    """
    found: list[Report] = []

    def reported() -> bool:
        reports = reports_in(console)
        found.extend(one for one in reports if one.fields.get("boots") == str(boots))
        return bool(found)

    try:
        wait_until(reported, f"boot {boots} in {console}", deadline, 0.5)
    except DeadlinePassed as err:
        raise GuestFailed(str(err)) from err
    return found[0]


def _server(found: dict[str, Any]) -> Server:
    busy = found["OS-EXT-STS:task_state"]
    return Server(
        found["id"],
        found["name"],
        f"{found['status']} {busy}" if busy else found["status"],
        found["OS-EXT-SRV-ATTR:host"] or "",
        found.get("fault", {}).get("message", ""),
    )


def _left_by_services(node: Node) -> list[str]:
    """Return what is exported or made of volumes and images, or what servers libvirt knows."""
    if node.name == STORAGE:
        exported = ["/sys/kernel/config/target", "-maxdepth", "3", "-name", "iqn.*openstack*"]
        looks = [["find", *exported], ["find", MADE, "-type", "f"]]
    else:
        looks = [["virsh", "list", "--all", "--name"]]
    return [line for look in looks for line in node.run(look, check=False).stdout.split()]
