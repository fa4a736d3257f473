"""Horizon on a bed, from an environment of its own."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.cluster import Bed
from lab.network import ADDRESS
from lab.openstack import environment
from lab.openstack.environment import Environment
from lab.openstack.services import Service, uwsgi
from lab.openstack.settings import Settings
from lab.rootfs import TOP

PORT = 8080
PLUGIN = TOP / "horizon_patches"


class Dashboard:
    """The files of Horizon, and how it is started."""

    def __init__(self, bed: Bed, settings: Settings) -> None:
        self.bed = bed
        self.settings = settings

    @property
    def folder(self) -> Path:
        """Where Horizon finds ``local.local_settings``."""
        return self.settings.etc / "horizon"

    @property
    def plugins(self) -> Path:
        """Where Horizon finds packages; one that has a folder ``enabled`` is switched on."""
        return self.settings.state / "horizon" / "plugins"

    def configure(self, token: str) -> None:
        """Write its settings, and collect what it serves as it is: memcached must run.

        :param token: by which it reads what Volt has
        """
        install(PLUGIN, self.settings.horizon, self.plugins)
        plugins = [str(path) for path in sorted(self.plugins.glob("*/enabled"))]
        local = self.folder / "local"
        self.settings.write("local_settings.py.in", local / "local_settings.py", plugins=plugins)
        (self.settings.state / "horizon/volt-token").write_text(token)
        self.settings.write("networks.py", local / "networks.py")
        (local / "__init__.py").touch()
        self._manage("collectstatic", "--noinput")
        self._manage("compress", "--force")

    def service(self) -> Service:
        """Return how it is started."""
        static = f"/static={self.settings.state}/horizon/static"
        program = self.settings.horizon.program("uwsgi")
        command = uwsgi(program, PORT, "openstack_dashboard.wsgi:application")
        return Service(
            "horizon",
            [*command, "--static-map", static],
            PORT,
            "/auth/login/",
            self._variables(),
        )

    def forward(self, port: int) -> str:
        """Let a port of 127.0.0.1 lead to it; return the URL."""
        self.bed.forward(port, (ADDRESS, PORT))
        return f"http://127.0.0.1:{port}"

    def _manage(self, *words: str) -> None:
        program = str(self.settings.horizon.program("django-admin"))
        self.bed.run_in([program, *words], timeout=300, env=self._variables())

    def _variables(self) -> dict[str, str]:
        paths = self.settings.horizon.variables(self.folder, self.plugins)
        return paths | {
            "HOME": str(self.settings.state),
            "DJANGO_SETTINGS_MODULE": "openstack_dashboard.settings",
        }


def install(plugin: Path, horizon: Environment, folder: Path) -> None:
    """Install a plug-in in a folder, as pip does it: its translations are compiled then."""
    with TemporaryDirectory() as scratch:
        source = shutil.copytree(plugin, Path(scratch, "source"))  # the build writes there
        environment.run(
            *(horizon.program("pip"), "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--target", folder, source),
        )
