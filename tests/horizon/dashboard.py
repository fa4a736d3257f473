"""A real Horizon on loopback, with the plug-in as pip installs it."""

import os
from contextlib import suppress
from pathlib import Path

import requests

from lab import processes
from lab.openstack import dashboard
from lab.openstack.environment import Environment
from lab.ports import ADDRESS, free_port
from lab.rootfs import TOP
from lab.waiting import wait_until

BIN = Path(os.environ["HORIZON_BIN"])
START = 60  # seconds

# The enabled files are where an operator would have copied them to.
SETTINGS = """
from openstack_dashboard.local import enabled as _enabled

_enabled.__path__.append({enabled!r})

ALLOWED_HOSTS = ["*"]
SECRET_KEY = "only for this test"
STATIC_ROOT = {static!r}
CACHES = {{"default": {{"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}}}
SESSION_ENGINE = "django.contrib.sessions.backends.file"  # that cache forgets what is old
SESSION_FILE_PATH = {sessions!r}
OPENSTACK_KEYSTONE_URL = {keystone!r}
TIME_ZONE = "UTC"
VIRTMAN = {virtman!r}
"""


def install(folder):
    """Install the plug-in below a folder; return where it is importable from."""
    dashboard.install(TOP / "horizon_patches", Environment(BIN.parent), folder / "plugin")
    return folder / "plugin"


class Dashboard:
    """One Horizon; ``virtman`` is the setting of that name."""

    def __init__(self, folder, plugin, keystone, virtman, more=""):
        self.folder = folder
        self.log = folder / "horizon.log"
        self.port = free_port()
        self.url = f"http://{ADDRESS}:{self.port}"
        local = folder / "local"
        local.mkdir(parents=True)
        (local / "__init__.py").touch()
        (folder / "sessions").mkdir()
        settings = SETTINGS.format(
            enabled=str(plugin / "virtman_dashboard" / "enabled"),
            static=str(folder / "static"),
            sessions=str(folder / "sessions"),
            keystone=keystone,
            virtman=virtman,
        )
        (local / "local_settings.py").write_text(settings + more)
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{folder}:{plugin}",
            "DJANGO_SETTINGS_MODULE": "openstack_dashboard.settings",
        }

    def __enter__(self):
        # No other server is needed for the static files of --insecure.
        command = [*processes.MORTAL, BIN / "python", "-m", "django", "runserver",
                   "--insecure", "--noreload", f"{ADDRESS}:{self.port}"]  # fmt: skip
        self._process = processes.start(
            command, "horizon", self.log, cwd=self.folder, env=self.environment
        )
        wait_until(lambda: self._answers() or not self._process.alive(), "Horizon", START)
        assert self._process.alive(), self.log.read_text()[-4000:]
        return self

    def __exit__(self, *exc):
        self._process.end()

    def _answers(self):
        with suppress(requests.ConnectionError, requests.Timeout):
            return requests.get(f"{self.url}/auth/login/", timeout=30).ok
        return False
