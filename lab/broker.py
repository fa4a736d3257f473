"""A RabbitMQ of one's own, from Debian's package: a folder, ports and a node name for itself."""

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Self

from lab import processes
from lab.errors import LabError
from lab.ports import ADDRESS, free_port
from lab.waiting import wait_until

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one on PATH insists on its account
START = 60  # seconds


class Broker:
    """Listens on loopback alone; it may be killed and started again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="virtman-rabbitmq-"))
        self.port, self._names, self._nodes = free_port(), free_port(), free_port()
        self.url = f"rabbit://guest:guest@{ADDRESS}:{self.port}/"
        self._processes: list[processes.Process] = []
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return once it takes connections."""
        # Erlang would start its name server as a daemon, which nobody ends.
        self._run("epmd", "-port", str(self._names), "-address", ADDRESS)
        self._await(self._names, "epmd")
        self._run(str(SERVER))
        self._await(self.port, "rabbitmq")

    def kill(self) -> None:
        """End it without a word; what it stored stays."""
        while self._processes:
            self._processes.pop().end()

    def stop(self) -> None:
        """End it and remove what it stored."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, *command: str) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": ADDRESS,
            "ERL_EPMD_PORT": str(self._names),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "none"),
            "RABBITMQ_DIST_PORT": str(self._nodes),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder),
            "RABBITMQ_MNESIA_BASE": str(self.folder),
            "RABBITMQ_NODENAME": f"virtman-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": ADDRESS,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-kernel inet_dist_use_interface {{{ADDRESS.replace('.', ',')}}}"
            ),
        }
        log = self.folder / "output"
        self._processes.append(processes.start(command, command[0], log, environ))

    def _await(self, port: int, what: str) -> None:
        process = self._processes[-1]
        wait_until(lambda: _answers(port) or not process.alive(), what, START)
        if not process.alive():
            raise LabError(f"{what} ended: {(self.folder / 'output').read_text()[-4000:]}")


def _answers(port: int) -> bool:
    try:
        socket.create_connection((ADDRESS, port), 1).close()
    except OSError:
        return False
    return True
