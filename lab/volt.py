"""A Volt on this machine's loopback, with as many workers as asked and on any database."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

import requests

from lab import processes, volt_database
from lab.client import Client
from lab.deployment import Options, ini
from lab.errors import VoltLost
from lab.ports import ADDRESS, free_port
from lab.rootfs import TOP
from lab.waiting import wait_until

START = 60  # seconds
STOP = 15
MOST = 1_000_000  # the largest rate and burst


def source(port: int) -> dict[str, object]:
    """Return a source on this machine, as an image is registered with it; Volt asks its port."""
    return {"ip": ADDRESS, "port": port, "iqn": "iqn.2026-11.org.virtman:source", "lun": 0}


class Volt:
    """volt-api as a process of its own; ``database`` is the URL that its options get."""

    def __init__(
        self, folder: Path, database: str, workers: int, options: Options | None = None
    ) -> None:
        """Bring the database to the newest schema and start."""
        self.address, self.port = ADDRESS, free_port()
        self.log = folder / "volt.log"
        self._config = folder / "volt.conf"
        self._config.touch(mode=0o600)  # there may be a password in it
        defaults: Options = {
            # One token speaks for all hosts here, thousands of times a second.
            "api": {
                "bind": f"{self.address}:{self.port}",
                "workers": workers,
                "rate": MOST,
                "burst": MOST,
            },
            "database": {"connection": database},
        }
        self._config.write_text(ini(defaults, options))
        self._count = workers
        volt_database.upgrade(database)
        self._operator = volt_database.token(database, "operator")
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start volt-api and wait until it answers; it dies with the thread that did this."""
        command = [sys.executable, "-m", "volt.cmd.api", "--config-file", self._config]
        command = [*processes.MORTAL, *command]
        # What a killed one leaves in its folder for temporary files goes with the log's.
        env = os.environ | {"TMPDIR": str(self.log.parent)}
        self._process = processes.start(command, "volt-api", self.log, env, TOP)
        wait_until(lambda: self._answers() or not self._process.alive(), "an answer of Volt", START)
        if not self._process.alive():
            raise VoltLost(f"Volt ended: {self.log.read_text()[-4000:]}")

    def kill(self) -> None:
        """End all its processes at once, without a word."""
        self._process.end()

    def stop(self) -> None:
        """Ask it to end, and return once it did."""
        os.kill(self._process.pid, signal.SIGTERM)
        wait_until(lambda: not self._process.alive(), "the end of Volt", STOP)

    def kill_worker(self, number: int) -> None:
        """End one worker without a word; Volt starts another one by itself."""
        workers = self.workers()
        if workers:
            with suppress(ProcessLookupError):
                os.kill(workers[number % len(workers)], signal.SIGKILL)

    def workers(self) -> list[int]:
        """Return the processes that serve requests."""
        return sorted(set(self._process.group()) - {self._process.pid})

    def processes(self) -> list[int]:
        """Return all its processes."""
        return self._process.group()

    def client(self, token: str | None = None) -> Client:
        """Return a client of it: an operator's, unless another token is given."""
        return Client(self.address, self.port, self._operator if token is None else token)

    def _answers(self) -> bool:
        with suppress(requests.ConnectionError, requests.Timeout):
            url = f"http://{self.address}:{self.port}/healthz"
            return requests.get(url, timeout=5).ok
        return False
