"""A cluster of Ceph on one node of a bed: a monitor and an OSD.

    ceph = Ceph(storage, clients)
    ceph.start()
    ceph.make_pool("images")
    ceph.rbd(clients[0], "ls", "images")

Its nodes need the packages of ``lab/images/ceph`` or ``lab/images/peers``. It holds 4 GiB, and
keeps them over a power cut of its node.
"""

import uuid
from collections.abc import Sequence

from lab.node import Node
from lab.waiting import wait_until

CONF = "/host/ceph.conf"
FOLDER = "/var/tmp/ceph"  # noqa: S108  # a node is nobody else's
KEYRING = f"{FOLDER}/keyring"
ADMIN = "/host/ceph.keyring"
LONGEST = 3600.0  # seconds, for an image that is copied
SETTINGS = """\
[global]
fsid = {fsid}
mon_host = {address}
auth_cluster_required = {auth}
auth_service_required = {auth}
auth_client_required = {auth}
mon_allow_pool_size_one = true
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
bluestore_block_size = 4294967296
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
mon_data = {folder}/mon
osd_data = {folder}/osd
[client.admin]
keyring = {admin}
"""


class Ceph:
    """One cluster.

    :param clients: nodes that use it, besides the one where it is
    :param secured: whether users have to prove who they are (cephx)
    :ivar fsid: the cluster's name
    """

    def __init__(self, node: Node, clients: Sequence[Node] = (), *, secured: bool = False) -> None:
        self.node = node
        self.clients = clients
        self.secured = secured
        self.fsid = str(uuid.uuid4())
        self._pids: list[int] = []

    def start(self) -> None:
        """Make it, and wait until it answers."""
        auth = "cephx" if self.secured else "none"
        conf = SETTINGS.format(
            fsid=self.fsid, address=self.node.address, folder=FOLDER, auth=auth, admin=ADMIN
        )
        for node in (self.node, *self.clients):
            (node.share / "ceph.conf").write_text(conf)
        self.node.run(["mkdir", "-p", f"{FOLDER}/mon", f"{FOLDER}/osd"])
        if self.secured:
            self._make_keys()
        at = f"[v2:{self.node.address}:3300,v1:{self.node.address}:6789]"
        monmap = f"{FOLDER}/monmap"
        self.node.run(["monmaptool", "--create", "--addv", "a", at, "--fsid", self.fsid, monmap])
        keys = ["--keyring", KEYRING] if self.secured else []
        make = ["ceph-mon", "-c", CONF, "--mkfs", "-i", "a", "--monmap", monmap, *keys]
        self.node.run(make, timeout=300)
        self._start_monitor()
        osd = str(uuid.uuid4())
        self.ceph("osd", "new", osd)
        if self.secured:
            caps = ("mon", "allow profile osd", "osd", "allow *")
            self.ceph("auth", "get-or-create", "osd.0", *caps, "-o", f"{FOLDER}/osd/keyring")
        make = ["ceph-osd", "-c", CONF, "-i", "0", "--mkfs", "--osd-uuid", osd]
        self.node.run(make, timeout=300)
        self._spawn("ceph-osd", "-i", "0")

    def restart(self) -> None:
        """Start it again after its node has."""
        self._pids.clear()
        self._start_monitor()
        self._spawn("ceph-osd", "-i", "0")

    def stop(self) -> None:
        """End it, and remove what it holds."""
        for pid in reversed(self._pids):
            self.node.run(["kill", str(pid)], check=False)
            self.node.run(["tail", f"--pid={pid}", "-f", "/dev/null"], timeout=120)
        self.node.run(["rm", "-rf", FOLDER])

    def make_pool(self, name: str) -> None:
        """Make a pool for images."""
        self.ceph("osd", "pool", "create", name, "16")
        self.rbd(self.node, "pool", "init", name)

    def make_user(self, node: Node, name: str, *caps: str) -> None:
        """Let a user in from a node, where Ceph's programs find the key by the user's name."""
        made = self.ceph("auth", "get-or-create", f"client.{name}", *caps)
        path = f"/etc/ceph/ceph.client.{name}.keyring"
        node.run(["install", "-D", "-m", "600", "/proc/self/fd/0", path], input=f"{made}\n")

    def ceph(self, *words: str) -> str:
        """Order something as the administrator; return what is printed."""
        done = self.node.run(["ceph", "-c", CONF, "--connect-timeout", "60", *words], timeout=120)
        return done.stdout.strip()

    def rbd(self, node: Node, *words: str) -> str:
        """Do something with images as the administrator, on a node; return what is printed."""
        return node.run(["rbd", "-c", CONF, *words], timeout=LONGEST).stdout.strip()

    def _make_keys(self) -> None:
        """Make the key by which monitors know each other, and that of the administrator."""
        tool = ["ceph-authtool", "--create-keyring", "--gen-key", "--cap", "mon", "allow *"]
        self.node.run([*tool, "-n", "mon.", KEYRING])
        self.node.run([*tool, "--cap", "osd", "allow *", "-n", "client.admin", ADMIN])
        self.node.run(["ceph-authtool", KEYRING, "--import-keyring", ADMIN])
        keys = (self.node.share / "ceph.keyring").read_text()
        for node in self.clients:
            (node.share / "ceph.keyring").write_text(keys)

    def _start_monitor(self) -> None:
        self._spawn("ceph-mon", "-i", "a")
        look = ["ceph", "-c", CONF, "--connect-timeout", "60", "osd", "ls"]
        wait_until(
            lambda: not self.node.run(look, timeout=120, check=False).status,
            "an answer of Ceph",
            120,
            1,
        )

    def _spawn(self, *argv: str) -> None:
        command = [argv[0], "-c", CONF, "-f", *argv[1:]]
        self._pids.append(self.node.spawn(command, log=f"{argv[0]}.log"))
