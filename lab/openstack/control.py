"""The control plane: what runs beside the nodes, its databases and its configuration.

What Keystone, the databases and their schemas are in the beginning is made once for each set of
releases, and kept in the cache: making it takes longer than all the rest.
"""

import fcntl
import logging
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from lab import processes
from lab.cluster import Bed
from lab.errors import LabError
from lab.network import ADDRESS
from lab.openstack import services
from lab.openstack.services import Service
from lab.openstack.settings import GLANCE, PASSWORD, REGION, TEMPLATES, Settings, login
from lab.rootfs import cache_folder, recipe_key
from lab.waiting import wait_until

LOG = logging.getLogger(__name__)
START = 240.0  # seconds, with everything starting at once on two cores
DATABASES = (
    *("keystone", "placement", "glance", "nova_api", "nova_cell0", "nova", "cinder"),
    "heat",  # which has no tables before it is started
)
# What a start keeps for the next one, below the folder of what services keep.
SEED = ("mariadb", "keystone")


class ControlPlane:
    """The services of one bed that run beside its nodes."""

    def __init__(self, bed: Bed, settings: Settings, hosts: Sequence[str]) -> None:
        self.bed = bed
        self.settings = settings
        self.hosts = hosts

    def configure(self) -> None:
        """Write all configuration files, and make the folders of what services keep."""
        write, etc = self.settings.write, self.settings.etc
        control = self.settings.control.folder / "etc"
        self.settings.make_folders()
        for name in ("nova", "cinder", "lock"):
            (self.settings.state / name).mkdir(parents=True)
        write("keystone.conf", etc / "keystone/keystone.conf")
        write("placement.conf", etc / "placement/placement.conf")
        write("glance-api.conf", etc / "glance/glance-api.conf")
        write("nova.conf", etc / "nova/nova.conf")
        write("nova-control.conf", etc / "nova/control.conf")
        shutil.copy(control / "nova/api-paste.ini", etc / "nova")
        write("cinder.conf", etc / "cinder/cinder.conf")
        write("cinder-control.conf", etc / "cinder/control.conf")
        write("rabbitmq.conf", etc / "rabbitmq.conf")
        (etc / "first.sql").write_text(
            f"CREATE USER IF NOT EXISTS openstack IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT ALL ON *.* TO openstack;\n"
            + "".join(f"CREATE DATABASE IF NOT EXISTS {name};\n" for name in DATABASES)
        )
        self._make_rabbitmq()

    def _make_rabbitmq(self) -> None:
        (self.settings.state / "rabbitmq").mkdir()
        (self.settings.state / "rabbitmq/plugins").write_text("[].\n")

    def start(self) -> None:
        """Start everything and wait until all of it answers."""
        self._make_seed()
        shutil.copytree(self._seed, self.settings.state, dirs_exist_ok=True)
        self.start_all(services.infrastructure(self.settings))
        self.start_all([services.keystone(self.settings)])
        self.start_all([*services.services(self.settings), *services.nova(self.settings)])

    def restart_nova(self) -> None:
        """End Nova's services, and start those of the Nova that the bed runs now."""
        nova = services.nova(self.settings)
        for service in nova:
            process = self.bed.process(service.name)
            if process:
                process.end(grace=10)
        self.start_all(nova)

    @property
    def _seed(self) -> Path:
        """Where the beginning of all databases is kept: the name has all that it depends on."""
        files = {path.name: path.read_bytes() for path in TEMPLATES.iterdir() if path.is_file()}
        files |= {
            path.name: path.read_bytes()
            for path in (Path(__file__), Path(__file__).with_name("catalog.py"))
        }
        files["environment"] = self.settings.control.folder.name.encode()
        files["hosts"] = " ".join(self.hosts).encode()
        return cache_folder() / f"openstack-seed-{recipe_key(files)}"

    def _make_seed(self) -> None:
        with open(cache_folder() / "openstack-seed.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._seed.exists():
                return
            LOG.info("making the databases of OpenStack, %s", self._seed.name)
            (self.settings.state / "mariadb").mkdir()
            self._run(
                *("mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db"),
                *(f"--datadir={self.settings.state}/mariadb",),
                "--auth-root-authentication-method=normal",
            )
            started = self.start_all(services.infrastructure(self.settings))
            steps: list[Callable[[], None]] = [
                self._sync_keystone, self._sync_placement, self._sync_glance, self._sync_cinder,
                self._sync_nova,
            ]  # fmt: skip
            with ThreadPoolExecutor(len(steps)) as pool:
                list(pool.map(lambda step: step(), steps))
            started += self.start_all([services.keystone(self.settings)])
            self._fill_keystone()
            for process in reversed(started):
                process.end(grace=20)  # MariaDB writes what it has before it ends
            part = self._seed.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            for name in SEED:
                shutil.move(self.settings.state / name, part / name)
            shutil.rmtree(self.settings.state / "rabbitmq")
            self._make_rabbitmq()  # it knows those who were connected, by names of their own
            part.rename(self._seed)

    def _sync_keystone(self) -> None:
        def manage(*words: str) -> None:
            config = f"{self.settings.etc}/keystone/keystone.conf"
            self._run("keystone-manage", "--config-file", config, *words)

        for kind in ("fernet", "credential"):
            (self.settings.state / f"keystone/{kind}-keys").mkdir(parents=True)
            manage(f"{kind}_setup", "--keystone-user", "root", "--keystone-group", "root")
        manage("db_sync")
        urls = (
            word
            for interface in ("admin", "internal", "public")
            for word in (f"--bootstrap-{interface}-url", f"http://{ADDRESS}:5000/v3/")
        )
        manage(
            "bootstrap", "--bootstrap-password", PASSWORD, "--bootstrap-region-id", REGION, *urls
        )

    def _sync_placement(self) -> None:
        config = f"{self.settings.etc}/placement/placement.conf"
        self._run("placement-manage", "--config-file", config, "db", "sync")

    def _sync_glance(self) -> None:
        config = f"{self.settings.etc}/glance/glance-api.conf"
        self._run("glance-manage", "--config-file", config, "db_sync")
        # Without these Horizon has no workers for what it asks of Glance.
        definitions = f"{self.settings.control.folder}/etc/glance/metadefs"
        self._run("glance-manage", "--config-file", config, "db_load_metadefs", definitions)

    def _sync_cinder(self) -> None:
        config = f"{self.settings.etc}/cinder/cinder.conf"
        self._run("cinder-manage", "--config-file", config, "db", "sync")

    def _sync_nova(self) -> None:
        files = [
            f"--config-file={self.settings.etc}/nova/{name}.conf" for name in ("nova", "control")
        ]
        cell0 = f"mysql+pymysql://openstack:{PASSWORD}@{ADDRESS}:3306/nova_cell0?charset=utf8mb4"

        def manage(*words: str) -> None:
            self._run("nova-manage", *files, *words)

        manage("api_db", "sync")
        manage("cell_v2", "map_cell0", "--database_connection", cell0)
        manage("cell_v2", "create_cell", "--name", "cell1")
        manage("db", "sync")

    def _fill_keystone(self) -> None:
        script = str(Path(__file__).with_name("catalog.py"))
        self._run("python", script, ADDRESS, GLANCE, PASSWORD, *self.hosts, login=True)

    def _run(self, *words: str, login: bool = False) -> None:
        """Run a program of the services once; it ends with this process."""
        self.bed.run_in(
            [*processes.MORTAL, *words],
            timeout=300,
            env=self.settings.variables() | (ADMIN if login else {}),
        )

    def start_all(self, what: Sequence[Service]) -> list[processes.Process]:
        """Start services side by side, and wait until each answers."""
        started = [self._start(service) for service in what]
        for service, process in zip(what, started, strict=True):
            self._wait_for(service, process)
        return started

    def _start(self, service: Service) -> processes.Process:
        return self.bed.spawn(
            [str(word) for word in service.command],
            self.settings.logs / f"{service.name}.out",
            self.settings.variables() | dict(service.variables),
            self.settings.state,
            service.name,
        )

    def _wait_for(self, service: Service, process: processes.Process) -> None:
        """Return once a service answers; an error has the end of its output."""
        wait_until(
            lambda: self.answers(service) or not process.alive(),
            f"an answer of {service.name} (see {self.settings.logs})",
            START,
            0.2,
        )
        if not process.alive():
            log = (self.settings.logs / f"{service.name}.out").read_text(errors="replace")
            raise LabError(f"{service.name} ended: {log[-3000:]}")

    def answers(self, service: Service) -> bool:
        """Tell whether a service can be reached; one that only takes messages is believed to."""
        if service.port is None:
            return True
        if service.path:
            return answers_http(self.bed, f"http://{ADDRESS}:{service.port}{service.path}")
        address = "127.0.0.1" if service.name == "epmd" else ADDRESS
        try:
            self.bed.connect((address, service.port), 1).close()
        except OSError:
            return False
        return True

    def everything(self) -> list[Service]:
        """Return all services of the control plane."""
        settings = self.settings
        own = [services.keystone(settings), *services.services(settings), *services.nova(settings)]
        return [*services.infrastructure(settings), *own]


ADMIN = login("admin", "admin")


def answers_http(bed: Bed, url: str) -> bool:
    """Tell whether a page of a bed can be had; one that asks for a login can."""
    with bed.inside():
        try:
            return requests.get(url, timeout=5).status_code < 500
        except requests.RequestException:
            return False
