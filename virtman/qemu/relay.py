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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from virtman.errors import InvalidRequest, QemuFailed, VirtmanError
from virtman.qemu import saving
from virtman.qemu.domain import Domain, Domains
from virtman.qemu.qmp import listening_at

_READY = "ready:"
"""Said before a project."""

_LARGEST = 1 << 20
"""Bytes of a question."""

_USERS = "guest-get-users"
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
def monitor(name: str, uri: str, owner: int) -> Iterator[tuple[str, str]]:
    """Give the path of a socket at which the QEMU of a domain answers, and libvirt passes that on.

    And the project whose the VM's memory is, if it was resumed; empty if all may have it.

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
        if not said.startswith(_READY):
            process.wait()
            raise InvalidRequest(said or f"domain {name} cannot be asked by libvirt at {uri}")
        yield str(path), said.removeprefix(_READY)
        process.stdin.close()
        process.wait()


def _serve(domain: Domain, monitor: socket.socket, guest: socket.socket) -> None:
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


def _serve_users(domain: Domain, guest: socket.socket) -> None:
    """Let the guest agent tell who is logged in, and nothing else, until the socket goes."""
    with suppress(OSError):
        while True:
            with guest.accept()[0] as connection, suppress(*_WRONG):
                _answer_users(domain, connection)


def _answer(domain: Domain, connection: socket.socket, guest: str) -> None:
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
                answer = _checked(asked) or _answered(
                    partial(domain.pass_on, json.dumps(asked), files)
                )
                answer = re.sub(rf"unix:[^,\"]*/{re.escape(_CHANNEL)}", f"unix:{guest}", answer)
                connection.sendall(answer.strip().encode() + b"\n")
                while files:
                    os.close(files.pop())
    finally:
        for file in files:
            os.close(file)


def _answer_users(domain: Domain, connection: socket.socket) -> None:
    with connection.makefile("rb") as questions:
        while line := questions.readline(_LARGEST):
            asked = json.loads(line.removeprefix(_MARK))
            if asked["execute"] == "guest-sync-delimited":  # libvirt has done so for itself
                said = json.dumps({"return": asked["arguments"]["id"]})
                connection.sendall(_MARK + said.encode() + b"\n")
                continue
            told = asked["execute"] == _USERS
            ask = partial(domain.ask_guest, f'{{"execute": "{_USERS}"}}')
            said = _answered(ask) if told else _refusal("not allowed")
            connection.sendall(said.strip().encode() + b"\n")


def _answered(ask: Callable[[], str]) -> str:
    """Return an answer, or a refusal that says why there is none."""
    try:
        return ask()
    except QemuFailed as err:
        return _refusal(str(err))


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
            domain = Domains(uri).domain(name)
            project = domain.project
        except VirtmanError as err:
            print(err)
            return
        with (
            listening_at(Path(path), int(owner)) as monitor,
            listening_at(Path(f"{path}.guest"), int(owner)) as guest,
        ):
            print(f"{_READY}{project}", flush=True)
            try:
                _serve(domain, monitor, guest)
            finally:
                with suppress(QemuFailed):  # it has ended
                    saving.go_on(domain)
    finally:
        shutil.rmtree(Path(path).parent)


if __name__ == "__main__":
    _main(*sys.argv[1:])
