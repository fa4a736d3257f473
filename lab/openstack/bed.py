"""OpenStack on a bed: up, status, down.

cloud = OpenStack("demo")
cloud.up()
cloud.client("server", "list")

          10.78.0.254, beside the nodes                 nodes
+--------------------------------------------+   +------------------------------+
| MariaDB  RabbitMQ  memcached  Horizon      |   | storage:  glance             |
| keystone  placement                        |---|    cinder-volume             |
| nova-api  -conductor  -scheduler           |   |    virtman-golden, -images   |
| cinder-api  -scheduler       Volt          |   | compute1: nova-compute       |
+--------------------------------------------+   | compute2  libvirt, QEMU      |
                                                 |           virtman-agent      |
                                                 +------------------------------+
"""

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from lab import processes
from lab.cluster import Bed
from lab.deployment import VOLT_PORT
from lab.errors import LabError
from lab.guest import guest_image
from lab.openstack.control import ControlPlane
from lab.openstack.dashboard import Dashboard
from lab.openstack.nodes import (
    GROUP,
    GUEST_DISK,
    IMAGE,
    KEY,
    ON_COMPUTES,
    ON_STORAGE,
    STORAGE,
    KeystoneDeployment,
    Nodes,
)
from lab.openstack.rest import Rest
from lab.openstack.services import Service
from lab.openstack.settings import KEYSTONE, PASSWORD, SNAPSHOT, Nova, Settings, login
from lab.remote import Result
from lab.waiting import wait_until

LOG = logging.getLogger(__name__)
LOGS = Path("/var/tmp/virtman-lab-logs")  # noqa: S108
START = 240.0  # seconds, of which two cores with nothing else to do take a tenth
COMPUTES = 2
USER = login("admin", "demo")
Say = Callable[[str], None]


class OpenStack:
    """One bed with OpenStack, whether this process started it or another one did."""

    def __init__(
        self,
        name: str,
        computes: int = COMPUTES,
        use_cachegroup: bool = True,
        link_rate: str | None = None,
    ) -> None:
        """Nothing is started yet; the environments are built if the cache lacks them.

        ``use_cachegroup`` is nova's option: whether ordinary volumes go through a cache.
        ``link_rate`` is that of each node's link; None for no limit.
        """
        self.bed = Bed(name, link_rate, addition=IMAGE)
        self.settings = Settings.of_bed(self.bed.folder / "openstack")
        self.deployment = KeystoneDeployment(self.bed)
        self.nodes = Nodes(self.bed, self.settings, self.deployment, use_cachegroup)
        self.rest = Rest(self.bed, "admin", "demo")
        self.names = [f"compute{number}" for number in range(1, computes + 1)]
        self.dashboard = Dashboard(self.bed, self.settings)
        self.control = ControlPlane(self.bed, self.settings, [*self.names, STORAGE])

    def up(self, say: Say = lambda step: None, nova: Nova = Nova.PATCHED) -> None:
        """Start the bed and all of it, and return once servers can be asked for."""
        say("preparing the images")
        guest_image()
        self.bed.up()
        try:
            self.start(say, nova)
        except BaseException:
            self.bed.down()
            raise

    def start(self, say: Say = lambda step: None, nova: Nova = Nova.PATCHED) -> None:
        """Start all of it on the bed, which is up and has nothing yet; logs stay if that fails."""
        try:
            self._start(say, nova)
        except Exception:
            LOG.error("bed %s failed; its logs are in %s", self.bed.name, self.keep_logs())
            raise

    def switch(self, nova: Nova) -> None:
        """Run another Nova than before; return once all services have reported."""
        for node in self.nodes.computes:
            self.nodes.stop(node, "nova-compute")
        self.settings.choose(nova)
        self.control.restart_nova()
        before = self._reports()
        for node in self.nodes.computes:
            self.nodes.start_nova(node)
        wait_until(lambda: not before & self._reports(), "a report of all compute nodes", START, 1)

    def _reports(self) -> set[tuple[str, str]]:
        """Return when nova-compute reported, by node."""
        found = self.rest.get("compute", "/os-services?binary=nova-compute")["services"]
        return {(one["host"], one["updated_at"]) for one in found}

    def _start(self, say: Say, nova: Nova) -> None:
        guest = guest_image()
        self.control.configure()
        self.settings.choose(nova)
        say("starting the control plane, and the kernels of the nodes")
        _all_at_once([self.control.start, lambda: self.nodes.boot(self.names, guest)])
        say("starting Volt")
        self._start_volt()
        say("starting Cinder's and Nova's services on the nodes, and Horizon")
        nodes = self.nodes
        starts = [partial(nodes.start_compute, node) for node in nodes.computes]
        _all_at_once([nodes.start_storage, *starts, self._start_dashboard])
        say("waiting until all services report")
        self._wait_reported()
        self._check_up()
        say(f"making the snapshot {SNAPSHOT!r}")
        self._make_content()

    def keep_logs(self) -> Path:
        """Copy what all programs said to where the end of the bed leaves it; return the folder."""
        kept = LOGS / self.bed.name
        if not self.bed.folder.exists():
            return kept
        shutil.rmtree(kept, ignore_errors=True)
        others = ("*.cow", "*.img", "state", "*.sqlite*", "*.token", KEY.name)
        shutil.copytree(self.bed.folder, kept, ignore=shutil.ignore_patterns(*others))
        return kept

    def _start_dashboard(self) -> None:
        self.dashboard.configure(self.deployment.manage("token", "create", "--role", "reader"))
        self.control.start_all([self.dashboard.service()])

    def _start_volt(self) -> None:
        account = {
            "www_authenticate_uri": KEYSTONE,
            "auth_url": KEYSTONE,
            "auth_type": "password",
            "username": "volt",
            "password": PASSWORD,
            "user_domain_name": "Default",
            "project_name": "service",
            "project_domain_name": "Default",
        }
        # Agents, users and virtman-golden come with tokens of Keystone, Horizon with one of Volt's.
        self.deployment.start_volt({"api": {"auth": "both"}, "keystone_authtoken": account})

    def _make_content(self) -> None:
        volume = self._content("volume")
        self.nodes.storage.run(
            [
                *("dd", f"if={GUEST_DISK}", f"of=/dev/{GROUP}/volume-{volume}", "bs=1M"),
                *("conv=sparse,fsync", "status=none"),
            ],
            timeout=300,
        )
        self._content("snapshot")

    def _content(self, what: str) -> str:
        script = Path(__file__).with_name("content.py")
        return self.run_as(USER, "python", str(script), what, SNAPSHOT).stdout.strip()

    def run_as(self, user: dict[str, str], *words: str, check: bool = True) -> Result:
        """Run a program of the services' environment as a user."""
        return self.bed.run_in(
            [*processes.MORTAL, *words],
            timeout=300,
            check=check,
            env=self.settings.variables() | user,
        )

    def run_client(self, *words: str, user: dict[str, str] = USER) -> Result:
        """Run openstackclient, whatever becomes of it."""
        return self.run_as(user, "openstack", *words, check=False)

    def client(self, *words: str, user: dict[str, str] = USER) -> Any:
        """Return what openstackclient shows, from its JSON; raises CommandFailed."""
        said = self.run_as(user, "openstack", *words, "-f", "json").stdout
        return json.loads(said)

    def order(self, *words: str, user: dict[str, str] = USER) -> None:
        """Have openstackclient do what it shows nothing of; raises CommandFailed."""
        self.run_as(user, "openstack", *words)

    def _wait_reported(self) -> None:
        """Return once all services that only take messages have said that they are up."""
        names = {node.name for node in self.nodes.computes}
        wanted = {("nova-compute", name) for name in names} | {
            *(("nova-conductor", "control"), ("nova-scheduler", "control")),
            *(("cinder-scheduler", "control"), ("cinder-volume", f"{STORAGE}@lvm")),
        }

        def reported() -> bool:
            up = [one for one in self.services() if one["state"] == "up"]
            return (
                wanted <= {(one["binary"], one["host"]) for one in up}
                and self._has_storage()
                and names <= self._mapped()
            )

        wait_until(reported, "a report of all services", START, 1)

    def _check_up(self) -> None:
        """Raise an error if a program that reports to nobody has ended."""
        ended = [
            f"{one['service']} ({one['where']})" for one in self.status() if one["state"] != "up"
        ]
        if ended:
            raise LabError(f"not up: {', '.join(ended)}")

    def _has_storage(self) -> bool:
        """Tell whether Cinder's scheduler knows of storage, which it hears of after all else."""
        return bool(self.rest.get("block-storage", "/scheduler-stats/get_pools")["pools"])

    def _mapped(self) -> set[str]:
        """Return the nodes that Nova has put in its cell: nothing boots on others."""
        found = self.rest.get("compute", "/os-hypervisors")["hypervisors"]
        return {one["hypervisor_hostname"] for one in found}

    def services(self) -> list[dict[str, str]]:
        """Return what Nova and Cinder say of their services."""
        found = self.rest.get("compute", "/os-services")["services"]
        found += self.rest.get("block-storage", "/os-services")["services"]
        return [
            {"binary": one["binary"], "host": one["host"], "state": one["state"]} for one in found
        ]

    def status(self) -> list[dict[str, str]]:
        """Return the health of each service: its name, where it runs, "up" or "down"."""
        found = {(service.name, "control"): self._runs(service) for service in self._beside()}
        for node in self.bed.nodes.values():
            alive = node.alive()
            found["kernel", node.name] = alive
            for program in ON_STORAGE if node.name == STORAGE else ON_COMPUTES:
                found[program, node.name] = alive and self.nodes.runs(node, program)
        if all(found[name, "control"] for name in ("keystone", "nova-api", "cinder-api")):
            for one in self.services():
                where = one["binary"], one["host"].partition("@")[0]
                found[where] = found.get(where, True) and one["state"] == "up"
        return [
            {"service": service, "where": where, "state": "up" if up else "down"}
            for (service, where), up in found.items()
        ]

    def _beside(self) -> list[Service]:
        volt = Service("volt", [], VOLT_PORT, "/healthz")
        return [*self.control.everything(), volt, self.dashboard.service()]

    def _runs(self, service: Service) -> bool:
        process = self.bed.process(service.name)
        return process is not None and process.alive() and self.control.answers(service)


def _all_at_once(work: Sequence[Callable[[], None]]) -> None:
    """Do things side by side; raise the first error once all have ended."""
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(one) for one in work]:
            done.result()
