"""VMs as domains of libvirt, which keeps the monitors of their QEMUs to itself.

libvirt gives QEMU a ``/dev`` of what it knows, and of what its settings list. So the memory of
whatever is resumed is at one path there, while a domain is started: one after the other.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from virtman.errors import HostUnfit, InvalidRequest, QemuFailed
from virtman.model import suspended
from virtman.qemu import domain_xml, guests, inspection
from virtman.qemu.guests import Account, Guest, Image
from virtman.qemu.qmp import Qemu

PROGRAM = "virtman-qemu"
_PATIENCE = 10  # seconds for a guest agent's answer
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Domain(Qemu):
    """A domain that runs, or stands still.

    :param found: as libvirt's module has it
    """

    def __init__(self, libvirt: Domains, found: Any) -> None:
        self.path = f"domain {found.name()}"
        self._libvirt = libvirt
        self._found = found

    def pass_on(self, question: str, files: Sequence[int] = ()) -> str:
        """Return QEMU's answer to a question of its protocol.

        :raises QemuFailed: if libvirt does not pass it on
        """
        with self._libvirt.failing():
            qemu = self._libvirt.qemu
            if files:
                answer = qemu.qemuMonitorCommandWithFiles(self._found, question, list(files), 0)
                return str(answer[0])
            return str(qemu.qemuMonitorCommand(self._found, question, 0))

    def ask_guest(self, question: str) -> str:
        """Return the guest agent's answer.

        :raises QemuFailed: if it gives none
        """
        with self._libvirt.failing():
            return str(self._libvirt.qemu.qemuAgentCommand(self._found, question, _PATIENCE, 0))

    def ask(self, command: str, **arguments: object) -> Any:
        """Return QEMU's answer; see ``Qemu``."""
        return self._ask(command, (), arguments)

    def give(self, name: str, descriptor: int) -> None:
        """Give QEMU an open file or socket, which it calls so then."""
        self._ask("getfd", (descriptor,), {"fdname": name})

    def _ask(self, command: str, files: Sequence[int], arguments: dict[str, object]) -> Any:
        question = json.dumps({"execute": command, "arguments": arguments})
        answer = json.loads(self.pass_on(question, files))
        if "return" not in answer:
            raise QemuFailed(f"QEMU of {self.path}: {command}: {answer['error']['desc']}")
        return answer["return"]

    def go_on(self) -> None:
        """Let the VM run."""
        with self._libvirt.failing():
            self._found.resume()

    def plug(self, tap: str, mac: str) -> None:
        """Give the VM a network card at a TAP interface that is there."""
        with self._libvirt.failing():
            self._found.attachDevice(domain_xml.card(tap, mac))

    @property
    def project(self) -> str:
        """Whose the VM's memory is, if it was resumed; empty if all may have it."""
        found = self.resumed
        return "" if found is None else found.get("project", "")

    @property
    def resumed(self) -> ElementTree.Element | None:
        """What it tells of itself if it was resumed here."""
        with self._libvirt.failing():
            return _parsed(self._found.XMLDesc()).find(f".//{{{domain_xml.OWN}}}resumed")

    def end(self) -> None:
        """End it, if it has not ended."""
        with suppress(QemuFailed), self._libvirt.failing():
            self._found.destroy()


class Domains:
    """A libvirt.

    :param uri: where it is
    :ivar qemu: its module for QEMU
    :raises InvalidRequest: if it is not there, or this process may not ask it
    """

    def __init__(self, uri: str) -> None:
        try:
            # Only here: they come with libvirt, and only who has domains has that.
            import libvirt  # noqa: PLC0415
            import libvirt_qemu  # noqa: PLC0415
        except ImportError as err:
            raise InvalidRequest(
                "libvirt's Python module is missing: install python3-libvirt"
            ) from err
        libvirt.registerErrorHandler(lambda _context, _error: None, None)
        self.uri = uri
        self.qemu = libvirt_qemu
        self._module = libvirt
        try:
            self._connection = libvirt.open(uri)
        except libvirt.libvirtError as err:
            raise InvalidRequest(f"libvirt at {uri}: {err}") from err

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Tell of what libvirt says as of what QEMU does not do.

        :raises QemuFailed: if it says that something failed
        """
        try:
            yield
        except self._module.libvirtError as err:
            hint = ""
            if guests.memory_of() in str(err):
                hint = f": list {guests.memory_of()} in cgroup_device_acl of its qemu.conf"
            raise QemuFailed(f"libvirt at {self.uri}: {err}{hint}") from err

    def domain(self, name: str) -> Domain:
        """Return a domain that is there.

        :param name: or its UUID
        :raises QemuFailed: if there is none
        """
        by_uuid = _UUID.fullmatch(name) is not None
        find = self._connection.lookupByUUIDString if by_uuid else self._connection.lookupByName
        with self.failing():
            found = find(name)
            if not found.isActive():
                raise QemuFailed(f"domain {name} does not run: start it first")
        return Domain(self, found)

    @cached_property
    def account(self) -> Account:
        """Whom libvirt runs QEMU as."""
        with self.failing():
            told = _parsed(self._connection.getCapabilities())
        for model in told.iterfind("./host/secmodel"):
            if model.findtext("model") == "dac":
                uid, gid = (int(one) for one in str(model.findtext("baselabel")).split(":"))
                return Account(uid, gid)
        raise HostUnfit(f"libvirt at {self.uri} does not say whom it runs QEMU as")

    @contextmanager
    def started(self, guest: Guest, image: Image) -> Iterator[Domain]:
        """Start a domain that waits for its state; it ends if what is done with it fails.

        :raises QemuFailed: if it does not start
        :raises HostUnfit: if it is not what the VM was
        """
        guests.begin(guest, self.uri)
        record = image.record
        with _alone(), self._memory(image) as memory, self.failing():
            backend = suspended.backend(record.hardware, memory, record.at)
            text = domain_xml.domain(guest, record.hardware, backend, _emulator())
            found = self._connection.createXML(text, self._module.VIR_DOMAIN_START_PAUSED)
        domain = Domain(self, found)
        try:
            _check_same(record.hardware, domain)
            yield domain
        except BaseException:
            domain.end()
            raise

    @contextmanager
    def _memory(self, image: Image) -> Iterator[str]:
        with guests.node(guests.memory_of(), image.device, self.account, 0o400) as path:
            guests.read_nothing_ahead(path)
            yield path

    def runs(self, vm: str) -> bool:
        """Tell whether a VM runs that was resumed."""
        domain = self._resumed(vm)
        try:
            return domain is not None and domain.status == "running"
        except QemuFailed:
            return False

    def end(self, vm: str) -> None:
        """End the domain of a VM that was resumed, if there is one."""
        domain = self._resumed(vm)
        if domain is not None:
            domain.end()

    def _resumed(self, vm: str) -> Domain | None:
        with suppress(QemuFailed):
            domain = self.domain(vm)
            return None if domain.resumed is None else domain
        return None


@contextmanager
def _alone() -> Iterator[None]:
    """Have no other domain started meanwhile."""
    with open(guests.GUESTS / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - libvirt's, which is root's


def _emulator() -> str:
    path = f"{Path(sys.argv[0]).resolve().parent}:{os.environ.get('PATH', os.defpath)}"
    found = shutil.which(PROGRAM, path=path)
    if found is None:
        raise HostUnfit(f"there is no program {PROGRAM} on PATH: it is part of VirtMan")
    return os.path.abspath(found)


def _check_same(wanted: suspended.Hardware, domain: Domain) -> None:
    found = inspection.hardware(domain)
    for name, value in vars(wanted).items():
        if getattr(found, name) != value:
            raise HostUnfit(
                f"libvirt makes another VM of it: {name} is {getattr(found, name)}, not {value}"
            )
