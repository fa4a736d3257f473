"""Lets the agent ask the QEMU of a libvirt domain, whose monitor libvirt keeps to itself.

::

    agent  --- QMP at a socket --->  this process  --- libvirt --->  QEMU of the domain
           -- its at another one ->                -- libvirt --->  guest agent

The agent has no right to use libvirt, which is as good as root's: it can ask one domain what it
takes to save it, as long as a command of root's has it do so. This is a process of its own, which
outlives a command that is killed: the domain may stand still just then. It ends once neither the
command nor the agent is there, and has the domain go on, should it stand still as it was saved.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

from virtman.errors import InvalidRequest, QemuFailed
from virtman.qemu import saving
from virtman.qemu.qmp import listening_at

_READY = "ready"
_LARGEST = 1 << 20
"""Bytes of a question."""

_USERS = "guest-get-users"
_PATIENCE = 10  # seconds for a guest agent's answer
_MARK = b"\xff"  # before what begins a conversation with a guest agent, and its answer
_CHANNEL = "org.qemu.guest_agent.0"
"""How the path ends of the socket at which libvirt has a guest agent."""

_SOCKET = "fd:"
"""Where a domain may be sent: to a socket that the agent has given it."""

_WRONG = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What it comes to if the agent asks something that is no question."""

_ALLOWED = frozenset(
    {
        *("cont", "getfd", "migrate_cancel", "migrate-set-capabilities", "migrate-set-parameters"),
        *("qom-get", "qom-list", "stop"),
    }
)
"""What the agent asks to save a VM; and to migrate it to a socket, and all of ``query-``."""


@contextmanager
def monitor(name: str, uri: str, owner: int) -> Iterator[str]:
    """Give the path of a socket at which the QEMU of a domain answers, and libvirt passes that on.

    :param name: of the domain, or its UUID
    :param uri: of the libvirt that has it
    :param owner: number of the account that may use the socket
    :raises InvalidRequest: if there is no such domain, or this process may not ask libvirt
    """
    if os.geteuid() != 0:
        raise InvalidRequest("asking libvirt for the agent needs root: run the command as root")
    folder = Path(tempfile.mkdtemp(prefix="virtman-domain-", dir="/run"))
    folder.chmod(0o711)
    path = folder / "qmp"
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, name, uri, str(path), str(owner)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        said = process.stdout.readline().strip()
        if said != _READY:
            process.wait()
            raise InvalidRequest(said or f"domain {name} cannot be asked by libvirt at {uri}")
        yield str(path)
        process.stdin.close()
        process.wait()


class _Domain:
    """A domain, as ``qmp.Monitor`` has a QEMU."""

    def __init__(self, name: str, uri: str) -> None:
        # Only here: it comes with libvirt, and only who has domains has that.
        import libvirt  # noqa: PLC0415
        import libvirt_qemu  # noqa: PLC0415

        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        self._error = libvirt.libvirtError
        self._qemu = libvirt_qemu
        connection = libvirt.open(uri)
        is_uuid = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name) is not None
        look_up = connection.lookupByUUIDString if is_uuid else connection.lookupByName
        self._domain = look_up(name)
        if not self._domain.isActive():
            raise QemuFailed(f"domain {name} does not run: start it first")

    def pass_on(self, question: str, files: Sequence[int]) -> str:
        """Return QEMU's answer to a question of its protocol."""
        try:
            if files:
                found = self._qemu.qemuMonitorCommandWithFiles(self._domain, question, files, 0)
                return str(found[0])
            return str(self._qemu.qemuMonitorCommand(self._domain, question, 0))
        except self._error as err:
            return _refusal(str(err))

    def ask_guest(self, question: str) -> str:
        """Return the guest agent's answer."""
        try:
            return str(self._qemu.qemuAgentCommand(self._domain, question, _PATIENCE, 0))
        except self._error as err:
            return _refusal(str(err))

    def ask(self, command: str, **arguments: object) -> Any:
        """Return QEMU's answer; raises QemuFailed if it refuses, or does not answer."""
        answer = json.loads(
            self.pass_on(json.dumps({"execute": command, "arguments": arguments}), ())
        )
        if "return" not in answer:
            raise QemuFailed(answer["error"]["desc"])
        return answer["return"]

    @property
    def status(self) -> str:
        """How it is."""
        return str(self.ask("query-status")["status"])


def _serve(domain: _Domain, monitor: socket.socket, guest: socket.socket) -> None:
    """Answer one who connects after another, until the command has ended, and nobody is there."""
    # the agent asks the guest agent while it has the monitor
    Thread(target=_serve_users, args=(domain, guest), daemon=True).start()
    command = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([monitor, command], [], [])
        if monitor in ready:
            with monitor.accept()[0] as connection, suppress(*_WRONG):
                _answer(domain, connection, guest.getsockname())
        elif not os.read(command, 1):
            return


def _serve_users(domain: _Domain, guest: socket.socket) -> None:
    """Let the guest agent tell who is logged in, and nothing else, until the socket goes."""
    with suppress(OSError):
        while True:
            with guest.accept()[0] as connection, suppress(*_WRONG):
                _answer_users(domain, connection)


def _answer(domain: _Domain, connection: socket.socket, guest: str) -> None:
    """Answer who is connected, until he goes; the guest agent is at another socket for him."""
    connection.sendall(b'{"QMP": {"version": {}, "capabilities": []}}\n')
    waiting, files = b"", list[int]()
    try:
        while len(waiting) <= _LARGEST:
            part, received, _, _ = socket.recv_fds(connection, _LARGEST, 1)
            waiting, files = waiting + part, files + received
            if not part:
                return
            while b"\n" in waiting:
                question, _, waiting = waiting.partition(b"\n")
                asked = json.loads(question)
                answer = _checked(asked) or domain.pass_on(json.dumps(asked), files)
                answer = re.sub(rf"unix:[^,\"]*/{re.escape(_CHANNEL)}", f"unix:{guest}", answer)
                connection.sendall(answer.strip().encode() + b"\n")
                while files:
                    os.close(files.pop())
    finally:
        for file in files:
            os.close(file)


def _answer_users(domain: _Domain, connection: socket.socket) -> None:
    with connection.makefile("rb") as questions:
        while line := questions.readline(_LARGEST):
            asked = json.loads(line.removeprefix(_MARK))
            if asked["execute"] == "guest-sync-delimited":  # libvirt has done so for itself
                said = json.dumps({"return": asked["arguments"]["id"]})
                connection.sendall(_MARK + said.encode() + b"\n")
                continue
            told = asked["execute"] == _USERS
            said = (
                domain.ask_guest(f'{{"execute": "{_USERS}"}}') if told else _refusal("not allowed")
            )
            connection.sendall(said.strip().encode() + b"\n")


def _checked(asked: dict[str, Any]) -> str:
    """Return what is answered without QEMU; empty if it is asked."""
    command, arguments = asked["execute"], asked.get("arguments", {})
    if command == "qmp_capabilities":  # libvirt has said so already, and QEMU takes it once
        return '{"return": {}}'
    if command == "migrate":
        is_allowed = arguments.keys() == {"uri"} and arguments["uri"].startswith(_SOCKET)
    else:
        is_allowed = command in _ALLOWED or command.startswith("query-")
    return "" if is_allowed else _refusal(f"{command} is not allowed here")


def _refusal(why: str) -> str:
    return json.dumps({"error": {"class": "GenericError", "desc": why}})


def _main(name: str, uri: str, path: str, owner: str) -> None:
    try:
        try:
            domain = _Domain(name, uri)
        except ImportError:
            print("libvirt's Python module is missing: install python3-libvirt")
            return
        except Exception as err:
            print(f"libvirt at {uri}: {err}")
            return
        with (
            listening_at(Path(path), int(owner)) as monitor,
            listening_at(Path(f"{path}.guest"), int(owner)) as guest,
        ):
            print(_READY, flush=True)
            try:
                _serve(domain, monitor, guest)
            finally:
                with suppress(QemuFailed):  # it has ended
                    saving.go_on(domain)
    finally:
        shutil.rmtree(Path(path).parent)


if __name__ == "__main__":
    _main(*sys.argv[1:])
