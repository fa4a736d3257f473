"""Where a bed's OpenStack keeps its files, and its configuration from the templates in conf/."""

import json
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Self

from lab.network import ADDRESS, node_address
from lab.openstack import environment
from lab.openstack.environment import Environment
from lab.rootfs import TOP

TEMPLATES = Path(__file__).with_name("conf")
PASSWORD = "secret"  # noqa: S105  # nobody else is in the bed's network
REGION = "RegionOne"
SNAPSHOT = "guest"  # of which servers are booted
KEYSTONE = f"http://{ADDRESS}:5000"
STORAGE_ADDRESS = node_address(1)  # of the node that is started first
GLANCE_PORT = 9292
GLANCE = f"http://{STORAGE_ADDRESS}:{GLANCE_PORT}"
GLANCE_FILES = "/var/lib/glance"  # on the storage node, a file system of its own
MADE = f"{GLANCE_FILES}/virtman"  # images that virtman-images made


class Nova(StrEnum):
    """Which Nova a bed runs."""

    PATCHED = "patched"  # with nova_patches, and VirtMan's driver on the compute nodes
    DRIVER = "driver"  # as it was released, with the driver
    STOCK = "stock"  # as it was released

    @property
    def driver(self) -> str:
        """What the option compute_driver says."""
        return "libvirt.LibvirtDriver" if self is Nova.STOCK else "virtman.LibvirtDriver"


@dataclass(frozen=True)
class Settings:
    """The files of one bed.

    :ivar folder: has ``etc``, ``logs`` and ``state``
    :ivar patched: folder of the patched package ``nova``, found before that of the environment
    """

    folder: Path
    control: Environment
    horizon: Environment
    patched: Path

    @classmethod
    def of_bed(cls, folder: Path) -> Self:
        """Return the settings of a bed: what it was started with, if it is up.

        A change of the patches meanwhile makes another folder, which its nodes do not see, and
        nobody who looks at a bed has to wait for what only the next one will run.
        """
        noted = folder / "programs.json"
        if noted.exists():
            control, horizon, patched = map(Path, json.loads(noted.read_text()))
            return cls(folder, Environment(control), Environment(horizon), patched)
        built = environment.control()
        return cls(folder, built, environment.horizon(), environment.patched_nova(built))

    def make_folders(self) -> None:
        """Make the folders, and note for whoever comes later what the bed runs."""
        for folder in (self.etc, self.logs, self.state):
            folder.mkdir(parents=True)
        programs = [str(self.control.folder), str(self.horizon.folder), str(self.patched)]
        (self.folder / "programs.json").write_text(json.dumps(programs))

    @property
    def nova(self) -> Nova:
        """Which Nova the bed runs."""
        chosen = self.folder / "nova"
        return Nova(chosen.read_text()) if chosen.exists() else Nova.PATCHED

    def choose(self, nova: Nova) -> None:
        """Note which Nova the bed runs from now on."""
        (self.folder / "nova").write_text(nova)

    @property
    def modules(self) -> list[Path]:
        """The folders with what is found before the modules of the environment."""
        return [self.patched] if self.nova is Nova.PATCHED else []

    @property
    def etc(self) -> Path:
        """Configuration."""
        return self.folder / "etc"

    @property
    def logs(self) -> Path:
        """What services say."""
        return self.folder / "logs"

    @property
    def state(self) -> Path:
        """What services keep."""
        return self.folder / "state"

    def variables(self, source: Path = TOP) -> dict[str, str]:
        """Return what the programs of the services run with; ``source`` holds VirtMan."""
        return self.control.variables(*self.modules, source) | {"HOME": str(self.state)}

    def write(self, template: str, target: Path, **values: object) -> None:
        """Write a configuration file."""
        text = Template((TEMPLATES / template).read_text())
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.substitute(self._values() | values))

    def _values(self) -> dict[str, object]:
        services = ("placement", "glance", "nova", "cinder", "neutron", "heat")
        return {
            "address": ADDRESS,
            "glance": GLANCE,
            "images": GLANCE_FILES,
            "control": self.control.folder,
            "state": self.state,
            "database": f"mysql+pymysql://openstack:{PASSWORD}@{ADDRESS}:3306",
            "messages": f"rabbit://guest:guest@{ADDRESS}:5672/",
            "tokens": TOKENS,
            **{f"as_{name}": _account(name) for name in services},
        }


def login(user: str, project: str) -> dict[str, str]:
    """Return the variables by which openstackclient and others know who they are."""
    return {
        "OS_AUTH_URL": f"{KEYSTONE}/v3",
        "OS_USERNAME": user,
        "OS_PASSWORD": PASSWORD,
        "OS_PROJECT_NAME": project,
        "OS_USER_DOMAIN_NAME": "Default",
        "OS_PROJECT_DOMAIN_NAME": "Default",
        "OS_IDENTITY_API_VERSION": "3",
        "OS_REGION_NAME": REGION,
    }


TOKENS = f"""\
www_authenticate_uri = {KEYSTONE}
memcached_servers = {ADDRESS}:11211
service_token_roles_required = true
service_token_roles = service"""


def _account(user: str) -> str:
    """Return the options by which a service logs in as itself."""
    return f"""\
auth_type = password
auth_url = {KEYSTONE}
project_domain_name = Default
user_domain_name = Default
project_name = service
username = {user}
password = {PASSWORD}
region_name = {REGION}"""
