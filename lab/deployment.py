"""VirtMan on a bed: Volt beside the nodes, an image's source on one, agents on the others.

    deployment = Deployment(bed)
    deployment.start_volt()
    deployment.add_source(bed.start_node("storage", disks=[Disk(image)]), "debian")
    deployment.start_agents(bed.start_nodes(["node1", "node2"]))
    deployment.create(bed.node("node1"), "debian", "vm1")["device"]

Everything but Volt's tables and tokens goes through VirtMan's own commands and its REST API.
"""

import configparser
import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import requests

from lab import volt_database
from lab.cluster import Bed
from lab.errors import DeadlinePassed
from lab.network import ADDRESS
from lab.node import Node
from lab.rootfs import TOP
from lab.waiting import wait_until

VOLT_PORT = 8778
SOURCE_DISK = "/dev/ubdc"
CACHE_DISK = "/dev/ubdb"
SOCKET = "/run/virtman/agent.sock"
CREATE_TIMEOUT = 300
PEER_PORT = 8779
AGENT_TOKEN = "/etc/virtman/volt.token"  # noqa: S105  # names of files
OPERATOR_TOKEN = "/etc/virtman/operator.token"  # noqa: S105

Options = Mapping[str, Mapping[str, object]]


class Deployment:
    """VirtMan's services on one bed."""

    def __init__(self, bed: Bed):
        self.bed = bed
        self.volt = f"http://{ADDRESS}:{VOLT_PORT}"

    @property
    def folder(self) -> Path:
        """Volt's files on the bed."""
        return self.bed.folder / "volt"

    def start_volt(self, options: Options | None = None) -> None:
        """Start Volt on a new SQLite database and wait until it answers."""
        self.folder.mkdir()
        defaults: Options = {
            "api": {"bind": f"{ADDRESS}:{VOLT_PORT}"},
            "database": {"connection": self._database},
        }
        (self.folder / "volt.conf").write_text(ini(defaults, options))
        volt_database.upgrade(self._database)
        self.operator_token.write_text(self.token("operator"))
        self.restart_volt()

    def stop_volt(self) -> None:
        """Kill Volt; its database stays."""
        self._process.end()

    def restart_volt(self) -> None:
        """Start Volt on the database that is there, and wait until it answers."""
        command = [sys.executable, "-m", "volt.cmd.api", *self._config_file()]
        log = self.folder / "log"
        self._process = process = self.bed.spawn(command, log, cwd=TOP, what="volt")
        wait_until(lambda: self._answers() or not process.alive(), "an answer of Volt", 30)
        if not process.alive():
            raise DeadlinePassed(f"Volt ended: {log.read_text()}")

    def manage(self, *words: str) -> str:
        """Run volt-manage; return what it prints."""
        command = [sys.executable, "-m", "volt.cmd.manage", *self._config_file(), *words]
        done = subprocess.run(command, check=True, cwd=TOP, capture_output=True, text=True)
        return done.stdout

    def token(self, role: str, host: str | None = None) -> str:
        """Return a new token, perhaps one that speaks for a host."""
        return volt_database.token(self._database, role, host)

    @property
    def _database(self) -> str:
        return f"sqlite:///{self.folder / 'volt.sqlite'}"

    def _config_file(self) -> list[str]:
        return ["--config-file", str(self.folder / "volt.conf")]

    @property
    def operator_token(self) -> Path:
        """The file with a token that may do everything."""
        return self.folder / "operator.token"

    def _answers(self) -> bool:
        try:
            return bool(self.ask("GET", "/healthz"))
        except requests.ConnectionError:
            return False

    def request(self, method: str, path: str, body: object = None) -> requests.Response:
        """Ask Volt as an operator."""
        headers = {"Authorization": f"Bearer {self.operator_token.read_text().strip()}"}
        with self.bed.inside():
            return requests.request(
                method, self.volt + path, json=body, headers=headers, timeout=30
            )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask Volt as an operator; raise requests.HTTPError for an error."""
        answer = self.request(method, path, body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def trees(self, image: str) -> dict[str, Any]:
        """Return an image's trees as Volt shows them."""
        answer: dict[str, Any] = self.ask("GET", f"/v1/images/{image}/trees")
        return answer

    def depths(self, image: str) -> dict[str, list[int]]:
        """Return each host's depth, one a stripe; 1 is fed by the source."""
        depths: dict[str, list[int]] = {}
        for tree in self.trees(image)["trees"]:
            for node in tree["nodes"]:
                depths.setdefault(node["host"], []).append(node["depth"])
        return depths

    def add_source(
        self,
        storage: Node,
        image: str,
        stripes: int = 2,
        fanout: int = 2,
        disk: str = SOURCE_DISK,
        shape: str = "forest",
        options: Sequence[str] = (),
    ) -> None:
        """Let a node serve a disk of its own as an image's source, perhaps with more options."""
        where = ["--ip", storage.address, *self.source_options(storage)]
        trees = ["--shape", shape, "--stripes", str(stripes), "--fanout", str(fanout)]
        command = ["virtman", "source", "add", image, disk, *where, *trees, *options]
        storage.run(command, timeout=CREATE_TIMEOUT)  # it reads the whole image

    def taking(
        self, storage: Node, layer: str, folder: str, maker: Node | None = None
    ) -> list[str]:
        """Return the command by which a storage node takes a layer from the node that made it.

        :param maker: the node, if it may still be making it
        """
        where = ["--ip", storage.address, *self.source_options(storage)]
        given = ["--from", maker.name] if maker else []
        return ["virtman", "source", "take", *where, *given, layer, folder]

    def wait_profile(self, image: str, deadline: float = 120.0, runs: int = 1) -> None:
        """Wait until Volt has a profile of what so many boots from an image read."""
        path = f"/v1/images/{image}/profiles/boot/history"

        def is_there() -> bool:
            answer = self.request("GET", path)
            return bool(answer.ok) and len(answer.json()["revisions"]) >= runs

        wait_until(is_there, f"a profile of {runs} boots", deadline, 1)

    def remove_source(self, storage: Node, image: str) -> None:
        """Make an image unknown and stop serving it."""
        storage.run(["virtman", "source", "remove", image, *self.source_options(storage)])

    def source_options(self, storage: Node) -> list[str]:
        """Return what "virtman source" has to know on a node: its name, Volt and a token."""
        return ["--host", storage.name, *self.volt_options(storage)]

    def volt_options(self, node: Node) -> list[str]:
        """Return what commands that ask Volt have to know on a node; they may do everything."""
        give(node, OPERATOR_TOKEN, self.operator_token.read_text(), "root")
        return ["--volt", self.volt, "--token-file", OPERATOR_TOKEN]

    def start_agents(self, nodes: Sequence[Node], options: Options | None = None) -> None:
        """Start agents side by side and wait until all answer."""
        with ThreadPoolExecutor(max(1, len(nodes))) as pool:
            list(pool.map(lambda node: self.start_agent(node, options), nodes))

    def start_agent(
        self,
        node: Node,
        options: Options | None = None,
        program: Sequence[str] = ("virtman-agent",),
    ) -> None:
        """Start one node's agent, or another program that is one, and wait until it answers."""
        defaults: Options = {
            "agent": {"host": node.name},
            "export": {"ip": node.address},
            "volt": {"url": self.volt, "token_file": AGENT_TOKEN},
            "cache": {"devices": CACHE_DISK},
            # else what one boot read would be fetched ahead of the next, and be counted too
            "profile": {"record": 0},
        }
        (node.share / "virtman.conf").write_text(ini(defaults, options))
        give(node, AGENT_TOKEN, self.token("host", node.name), "virtman")
        node.run(["rm", "-f", SOCKET])
        node.spawn([*program, "--config-file", "/host/virtman.conf"], log="agent.log")
        is_peer = "peers" in (options or {})
        try:
            wait_until(lambda: _answers(node, is_peer), f"the agent of {node.name}", 60, 0.2)
        except DeadlinePassed as err:
            raise DeadlinePassed(f"{err}:\n{self._what_an_agent_does(node)}") from None

    def _what_an_agent_does(self, node: Node) -> str:
        """Return the end of an agent's log, its node's processes and where they wait."""
        said = (node.share / "agent.log").read_text(errors="replace").splitlines()[-20:]
        doing = node.run(["ps", "-eo", "pid,ppid,stat,time,wchan:30,args"], check=False)
        return "\n".join([*said, doing.stdout])

    def kill_agent(self, node: Node) -> None:
        """Kill one node's agent; devices stay."""
        node.run(["pkill", "-KILL", "-f", "virtman.cmd.agent"])

    def create(self, node: Node, image: str, vm: str) -> dict[str, Any]:
        """Create a VM's device; return the VM as the local API shows it."""
        done = node.run(["virtman", "create", "--json", image, vm], timeout=CREATE_TIMEOUT)
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    def ahead(self, node: Node, image: str) -> dict[str, Any] | None:
        """Return what a node has fetched of an image ahead of its VMs; None if it does not."""
        found = self._images(node)
        return next((one["ahead"] for one in found if one["image"] == image), None)

    def destroy(self, node: Node, *vms: str) -> None:
        """Destroy VMs' devices."""
        if vms:
            node.run(["virtman", "destroy", *vms])

    def drop(self, node: Node, image: str) -> None:
        """Let a node leave an image, if it has it."""
        if any(one["image"] == image for one in self._images(node)):
            node.run(["virtman", "image", "drop", image], timeout=CREATE_TIMEOUT)

    def _images(self, node: Node) -> list[dict[str, Any]]:
        """Return the images that a node has attached, as the local API shows them."""
        images: list[dict[str, Any]] = json.loads(
            node.run(["virtman", "image", "list", "--json"]).stdout
        )
        return images


def _answers(node: Node, is_peer: bool) -> bool:
    """Tell whether a node's agent has begun to serve: the node itself, and other agents."""
    if node.run(["test", "-S", SOCKET], check=False).status != 0:
        return False
    # its library of certificates takes a while to load on a busy processor
    ports = ["ss", "-Hltn", "sport", "=", f":{PEER_PORT}"]
    return not is_peer or bool(node.run(ports).stdout)


def give(node: Node, path: str, content: str, user: str) -> None:
    """Write a file in a node that only one account there can read."""
    node.run(["install", "-D", "-m", "600", "-o", user, "/proc/self/fd/0", path], input=content)


def leftovers(node: Node) -> list[str]:
    """Return what VirtMan left in a node's kernel and folders: nothing, if all is well."""
    found = []
    for what, command in _LOOKS.items():
        done = node.run(["sh", "-c", command], check=False)
        found += [f"{node.name}: {what} {line}" for line in done.stdout.splitlines() if line]
    return found


# Each prints a line for everything of ours that is still there.
_LOOKS = {
    "device": "dmsetup ls 2>/dev/null | grep ^virtman_",
    "bcache": "ls -d /sys/fs/bcache/*-* 2>/dev/null",
    "loop device": "losetup --noheadings --output NAME,BACK-FILE",
    "iSCSI session": "iscsiadm -m session 2>/dev/null",
    "iSCSI record": "iscsiadm -m node 2>/dev/null",
    "iSCSI disk": "ls -d /sys/block/sd* 2>/dev/null",
    "LIO target": "ls -d /sys/kernel/config/target/iscsi/iqn.*virtman* 2>/dev/null",
    "LIO object": "ls -d /sys/kernel/config/target/core/fileio_*/virtman_* 2>/dev/null",
    "file": "find /var/lib/virtman/*/ -type f 2>/dev/null",
    "guest": "pgrep -a qemu-system",
}


def ini(defaults: Options, options: Options | None) -> str:
    """Return the text of a configuration file; ``options`` override the defaults."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_dict({name: {k: str(v) for k, v in g.items()} for name, g in defaults.items()})
    parser.read_dict(
        {name: {k: str(v) for k, v in g.items()} for name, g in (options or {}).items()}
    )
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()
