"""The nodes of OpenStack: one with cinder-volume, and those with libvirt and nova-compute.

What a node keeps over a power cut is on its disks; what must be there again after it is done by
``start``, for the first time and for any other.
"""

from collections.abc import Callable
from pathlib import Path

from lab.cluster import Bed
from lab.deployment import OPERATOR_TOKEN, Deployment, Options, give
from lab.errors import DeadlinePassed
from lab.node import Node
from lab.openstack.control import answers_http
from lab.openstack.rest import Rest
from lab.openstack.services import uwsgi
from lab.openstack.settings import (
    GLANCE,
    GLANCE_FILES,
    GLANCE_PORT,
    MADE,
    STORAGE_ADDRESS,
    Settings,
    login,
)
from lab.rootfs import TOP
from lab.state import Disk
from lab.waiting import wait_until

IMAGE = TOP / "lab/images/openstack"
STORAGE = "storage"
GROUP = "cinder"
GROUP_DISK = "/dev/ubdb"
GUEST_DISK = "/dev/ubdc"
IMAGES_SIZE = "12G"
START = 240.0  # seconds
KEY = Path("/root/.ssh/id_ed25519")
LIBVIRT = Path("/usr/lib/python3/dist-packages")  # Debian's binding; nothing else is there
PATIENCE = 20  # seconds for which a disk waits for a node that does not answer
KEEP_TIME = 5  # seconds for which what no server uses any more stays, on nodes and in Cinder

ON_STORAGE = ("cinder-volume", "glance", "virtman-golden", "virtman-images")
ON_COMPUTES = ("virtman-agent", "libvirtd", "nova-compute")

# Prints where a program's tasks are in the kernel, and lets Python say in its log where it is.
WHERE = """
for process in $(pgrep -f "$1" | grep -vx $$); do
    for task in /proc/$process/task/*; do
        echo "$task" && cat "$task/stack"
    done
    kill -ABRT "$process"
done
"""

# By which the programs of a node are known among its processes.
PROGRAMS = {
    "cinder-volume": "/cinder-volume ",
    "glance": "/uwsgi .*glance",
    "virtman-golden": "/virtman-golden ",
    "virtman-images": "/virtman-images ",
    "libvirtd": "^libvirtd",
    "nova-compute": "/nova-compute ",
    "virtman-agent": "virtman.cmd.agent ",
}


class KeystoneDeployment(Deployment):
    """VirtMan's services where Keystone says who asks."""

    def token(self, role: str, host: str | None = None) -> str:
        """Return a token of the user who stands for a host, or of nova, whose role is admin."""
        user = f"virtman-{host}" if host else "nova"
        return Rest(self.bed, user, "service").token()


class Nodes:
    """The nodes of one bed."""

    def __init__(
        self, bed: Bed, settings: Settings, deployment: Deployment, use_cachegroup: bool
    ) -> None:
        self.bed = bed
        self.settings = settings
        self.deployment = deployment
        self.use_cachegroup = use_cachegroup

    def boot(self, computes: list[str], guest: Path) -> None:
        """Start the kernels of all."""
        storage = self.bed.start_node(STORAGE, "1G", "30G", [Disk(guest, readonly=True)])
        storage.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"/host/{KEY.name}"])
        self.bed.start_nodes(computes, "1G", "4G")

    @property
    def storage(self) -> Node:
        """The node with the volumes."""
        return self.bed.node(STORAGE)

    @property
    def computes(self) -> list[Node]:
        """The nodes with the servers."""
        return [node for name, node in self.bed.nodes.items() if name != STORAGE]

    def start_storage(self) -> None:
        """Start Glance, cinder-volume, and what makes images, on a node that has just booted."""
        node = self.storage
        self._prepare(node)
        self._configure(node, "cinder", "volume")
        if node.run(["vgs", GROUP], check=False).status:
            node.run(["vgcreate", "-y", GROUP, GROUP_DISK])
        node.run(["vgchange", "--activate", "y", GROUP])  # udev leaves that to systemd
        # Cinder takes all of the group that it finds free.
        if node.run(["lvs", f"{GROUP}/glance"], check=False).status:
            node.run(["lvcreate", "-y", "-L", IMAGES_SIZE, "-n", "glance", GROUP])
            node.run(["mkfs.ext4", "-q", f"/dev/{GROUP}/glance"])
        node.run(["mkdir", "-p", GLANCE_FILES, "/var/lib/cinder/volumes"])
        node.run(["mount", f"/dev/{GROUP}/glance", GLANCE_FILES])
        self.start_glance()
        self._spawn(node, "cinder-volume", *_config_files("cinder", "volume"))
        give(node, OPERATOR_TOKEN, self.deployment.operator_token.read_text(), "root")
        self.start_golden()
        self.start_images()

    def start_glance(self) -> None:
        """Start Glance, and wait until it answers."""
        node = self.storage
        folder = node.share / "glance"
        self.settings.write("glance-api.conf", folder / "glance-api.conf")
        program = self.settings.control.program("uwsgi")
        module = "glance.wsgi.api:application"
        command = uwsgi(program, GLANCE_PORT, module, address=STORAGE_ADDRESS)
        variables = self.settings.control.variables()
        variables |= {"HOME": GLANCE_FILES, "OS_GLANCE_CONFIG_DIR": "/host/glance"}
        variables["PYTHONFAULTHANDLER"] = "1"
        node.spawn([str(word) for word in command], "glance.out", variables)
        try:
            _wait(node, "Glance", lambda: answers_http(self.bed, f"{GLANCE}/healthcheck"))
        except DeadlinePassed as err:  # seen twice, while it was being imported
            done = node.run(["sh", "-c", WHERE, "sh", PROGRAMS["glance"]], check=False)
            raise DeadlinePassed(f"{err}; its tasks are at\n{done.stdout}") from err

    def start_golden(self) -> None:
        """Start what serves golden volumes."""
        self._serve("virtman-golden", "nova", {"--lock-path": "/var/lib/cinder/lock"})

    def start_images(self) -> None:
        """Start what makes images of Glance, and serves them."""
        self._serve("virtman-images", "glance", {"--folder": MADE})

    def _serve(self, program: str, user: str, options: dict[str, str]) -> None:
        """Start a program that serves images on the storage node, and asks as a user."""
        node = self.storage
        options |= {
            "--volt": self.deployment.volt,
            "--token-file": OPERATOR_TOKEN,
            "--ip": node.address,
            "--host": node.name,
            "--keep-time": str(KEEP_TIME),
            "--interval": "1",
        }
        words = [word for pair in options.items() for word in pair]
        self._spawn(node, program, *words, variables=login(user, "service"))

    def start_compute(self, node: Node) -> None:
        """Start libvirt, VirtMan's agent and nova-compute on a node that has just booted."""
        self._prepare(node)
        node.run(["mkdir", "-p", "/host/instances", "/var/lib/nova"])
        self._start_sshd(node)
        self.start_agent(node)
        for daemon in ("virtlogd", "libvirtd"):
            node.spawn([daemon], f"{daemon}.log")
        _wait(node, "libvirt", lambda: _succeeds(node, "virsh", "version"))
        self.start_nova(node)

    def start_agent(self, node: Node) -> None:
        """Start the agent and wait until it answers."""
        options: Options = {
            "image": {"keep_time": KEEP_TIME},
            "peers": {"ip": node.address, "patience": PATIENCE},
        }
        self.deployment.start_agent(node, options)

    def start_nova(self, node: Node) -> None:
        """Start nova-compute, of the Nova that the bed runs now."""
        self._configure(node, "nova", "compute", driver=self.settings.nova.driver)
        self._spawn(node, "nova-compute", *_config_files("nova", "compute"))

    def _start_sshd(self, node: Node) -> None:
        """Let nova-compute of the other nodes in: what it moves is sent by ssh.

        One key of the bed is who asks, and who answers.
        """
        key = self.storage.share / KEY.name
        public = key.with_suffix(".pub").read_text()
        give(node, str(KEY), key.read_text(), "root")
        give(node, str(KEY.with_name("authorized_keys")), public, "root")
        give(node, str(KEY.with_name("known_hosts")), f"* {public}", "root")
        node.run(["mkdir", "-p", "/run/sshd"])
        node.spawn(["/usr/sbin/sshd", "-D", "-e", "-h", str(KEY)], "sshd.log")

    def stop(self, node: Node, program: str) -> None:
        """Kill a program of a node without a word."""
        node.run(["pkill", "-KILL", "-f", PROGRAMS[program]], check=False)
        _wait(node, f"the end of {program}", lambda: not self.runs(node, program))

    def runs(self, node: Node, program: str) -> bool:
        """Tell whether a program of a node runs."""
        return _succeeds(node, "pgrep", "-f", PROGRAMS[program])

    def _prepare(self, node: Node) -> None:
        """Mount the environments."""
        for folder in (self.settings.control.folder, self.settings.patched):
            node.run(["mkdir", "-p", str(folder)])
            node.run(["mount", "-t", "hostfs", "-o", f"ro,{folder}", "none", str(folder)])
        node.run(["ln", "-sfn", "/proc/self/fd", "/dev/fd"])

    def _configure(self, node: Node, service: str, kind: str, **values: object) -> None:
        """Write a service's configuration into the share."""
        helper = self.settings.control.program("privsep-helper")
        etc = node.share / service
        privsep = " ".join([str(helper), *_config_files(service, kind)])
        self.settings.write(f"{service}.conf", etc / f"{service}.conf")
        self.settings.write(
            f"{service}-{kind}.conf",
            etc / f"{kind}.conf",
            host=node.name,
            ip=node.address,
            privsep=privsep,
            use_cachegroup=str(self.use_cachegroup).lower(),
            **values,
        )

    def _spawn(
        self, node: Node, program: str, *words: str, variables: dict[str, str] | None = None
    ) -> None:
        settings = self.settings
        path = settings.control.program(program)
        everything = settings.control.variables(*settings.modules, Path("/opt/src"), LIBVIRT)
        node.spawn([str(path), *words], f"{program}.out", everything | (variables or {}))


def _config_files(service: str, kind: str) -> list[str]:
    return [
        word
        for name in (service, kind)
        for word in ("--config-file", f"/host/{service}/{name}.conf")
    ]


def _succeeds(node: Node, *words: str) -> bool:
    return node.run(words, check=False).status == 0


def _wait(node: Node, what: str, condition: Callable[[], bool]) -> None:
    wait_until(condition, f"{what} on {node.name}", START, 0.2)
