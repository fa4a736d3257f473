"""Asks QEMU by its monitor protocol: one question after another."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from virtman.errors import InvalidRequest, QemuFailed
from virtman.model.suspended import NIC

_TIMEOUT = 30.0
_LOOK = 0.01

# Chooses an interface of a kind: TAP, without a header of packets, but with one of virtio.
_SET_INTERFACE, _TAP = 0x400454CA, 0x0002 | 0x1000 | 0x4000

_NO_MEMORY = "x-ignore-shared"  # what is shared with a file
_MAPPED = "mapped-ram"  # each page has its place in the file


class Qemu(ABC):
    """A QEMU that can be asked, however that is reached.

    :ivar path: of its socket, or what libvirt calls it
    """

    path: str

    @abstractmethod
    def ask(self, command: str, **arguments: object) -> Any:
        """Return QEMU's answer.

        :raises QemuFailed: if it refuses, or does not answer
        """

    @abstractmethod
    def give(self, name: str, descriptor: int) -> None:
        """Give QEMU an open file or socket, which it calls so then."""

    @abstractmethod
    def plug(self, tap: str, mac: str) -> None:
        """Give the VM a network card at a TAP interface that is there.

        :raises InvalidRequest: if there is no such interface
        :raises QemuFailed: if the VM does not take it
        """

    def go_on(self) -> None:
        """Let the VM run."""
        self.ask("cont")

    def value(self, path: str, name: str) -> Any:
        """Return a property of an object."""
        return self.ask("qom-get", path=path, property=name)

    def children(self, path: str) -> dict[str, str]:
        """Return the types of the objects below one, by their paths."""
        return {
            f"{path}/{one['name']}": one["type"][len("child<") : -1]
            for one in self.ask("qom-list", path=path)
            if one["type"].startswith("child<")
        }

    @property
    def status(self) -> str:
        """How the VM is: running, paused, inmigrate, postmigrate ..."""
        return str(self.ask("query-status")["status"])

    def leave_memory_out(self, left_out: bool) -> None:
        """Say whether memory that is in a file is no part of what is sent, or received."""
        self._set(_NO_MEMORY, left_out)

    def load(self, file: str) -> None:
        """Have the memory and the state of a save that has a place for each page.

        :raises QemuFailed: if it is none, or of a VM that has other hardware
        """
        self._set(_MAPPED, True)
        self.ask("migrate-incoming", uri=f"file:{file}")
        self.await_migrated()
        self._set(_MAPPED, False)

    def _set(self, capability: str, state: bool) -> None:
        self.ask(
            "migrate-set-capabilities", capabilities=[{"capability": capability, "state": state}]
        )

    def await_migrated(self, look: Callable[[int, int], None] = lambda *_: None) -> None:
        """Wait until a migration has succeeded.

        :param look: called now and then with the bytes of memory that were sent, and of how many;
            both are 0 before it has begun
        :raises QemuFailed: if it has not
        """
        while (found := self.ask("query-migrate")).get("status") != "completed":
            if found.get("status") in ("failed", "cancelled"):
                why = found.get("error-desc", "no reason given")
                raise QemuFailed(f"QEMU at {self.path} could not hand over its state: {why}")
            memory = found.get("ram", {"total": 0, "remaining": 0})
            total = memory["total"]
            look(total - memory["remaining"], total)
            time.sleep(_LOOK)


class Monitor(Qemu):
    """A QEMU; its socket serves one at a time.

    :param path: of the socket
    :param patience: seconds for which a QEMU that just starts may not listen yet
    :param runs: tells meanwhile whether it has not ended
    """

    def __init__(
        self, path: str, patience: float = 0.0, runs: Callable[[], bool] = lambda: True
    ) -> None:
        self.path = path
        self._socket = _connected(path, patience, runs)
        self._file = self._socket.makefile("rb")
        try:
            self._read()  # its greeting
            self.ask("qmp_capabilities")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others ask."""
        self._file.close()
        self._socket.close()

    def ask(self, command: str, **arguments: object) -> Any:
        """Return QEMU's answer.

        :raises QemuFailed: if it refuses, or does not answer
        """
        question = json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"
        return self._exchange(command, lambda: self._socket.sendall(question))

    def _exchange(self, command: str, send: Callable[[], object]) -> Any:
        try:
            send()
        except OSError as err:
            raise self._failed(str(err)) from err
        while "return" not in (answer := self._read()):
            if "error" in answer:
                raise QemuFailed(f"QEMU at {self.path}: {command}: {answer['error']['desc']}")
        return answer["return"]

    def give(self, name: str, descriptor: int) -> None:
        """Give QEMU an open file or socket, which it calls so then."""
        question = json.dumps({"execute": "getfd", "arguments": {"fdname": name}}).encode() + b"\n"
        self._exchange("getfd", lambda: socket.send_fds(self._socket, [question], [descriptor]))

    def plug(self, tap: str, mac: str) -> None:
        """Give the VM a network card at a TAP interface that is there; see ``Qemu``."""
        asked = struct.pack("16sH22x", tap.encode(), _TAP)
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _SET_INTERFACE, asked)
            self.give("tap0", descriptor)
        except OSError as err:
            raise InvalidRequest(f"{tap!r} is no TAP interface that can be used: {err}") from err
        finally:
            os.close(descriptor)
        self.ask("netdev_add", type="tap", id="net0", fd="tap0")
        self.ask("device_add", driver=NIC, id="nic0", netdev="net0", mac=mac)

    def _read(self) -> dict[str, Any]:
        try:
            line = self._file.readline()
            if not line:
                raise self._failed("it has closed the connection")
            found: dict[str, Any] = json.loads(line)
        except (OSError, ValueError) as err:
            raise self._failed(str(err)) from err
        return found

    def _failed(self, why: str) -> QemuFailed:
        return QemuFailed(f"QEMU at {self.path} does not answer ({why})")


def features(monitor: Qemu) -> tuple[str, list[dict[str, Any]]]:
    """Return the type of a VM's first processor, and what that says that it can do."""
    path = monitor.ask("query-cpus-fast")[0]["qom-path"]
    words = monitor.value(path, "feature-words")
    return monitor.value(path, "type"), sorted(words, key=lambda one: sorted(one.items(), key=str))


def _connected(path: str, patience: float, runs: Callable[[], bool]) -> socket.socket:
    deadline = time.monotonic() + patience
    while True:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_TIMEOUT)
        try:
            connection.connect(path)
            return connection
        except OSError as err:
            connection.close()
            if time.monotonic() >= deadline or not runs():
                raise QemuFailed(
                    f"nothing answers at {path} ({err}): check the path, and that this account may "
                    "use the socket"
                ) from err
        time.sleep(_LOOK)


def listen(path: Path) -> socket.socket:
    """Return a socket to which QEMU sends its state."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.settimeout(_TIMEOUT)
    listening.bind(str(path))
    listening.listen(1)
    return listening


@contextmanager
def listening_at(path: Path, owner: int) -> Iterator[socket.socket]:
    """Give a socket that only its owner may use, in a folder that is not his."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o600)
        os.chown(path, owner, -1)
        listening.listen(1)
        yield listening
