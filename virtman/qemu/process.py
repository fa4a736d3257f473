"""VMs whose QEMU is a process of its own, as an account without privileges.

Its monitor and its serial ports are sockets in a folder of the VM, which QEMU is given open: it
cannot have this process, which is root's, take something else for them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from virtman.errors import InvalidRequest, QemuFailed
from virtman.model import suspended
from virtman.qemu import guests, sandbox
from virtman.qemu.guests import Account, Guest, Image
from virtman.qemu.qmp import Monitor, listening_at

PROGRAM = "qemu-system-x86_64"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Processes:
    """Runs QEMUs.

    :param account: whom as
    """

    def __init__(self, account: Account) -> None:
        self.account = account

    @contextmanager
    def started(self, guest: Guest, image: Image) -> Iterator[Monitor]:
        """Start a QEMU that waits for its state; it ends if what is done with it fails.

        :raises QemuFailed: if it does not start
        """
        folder, owner = guests.begin(guest), os.stat(image.agent).st_uid
        hardware = image.record.hardware
        with (
            guests.node(guests.memory_of(guest.vm), image.device, self.account, 0o400) as memory,
            guests.node(guests.disk_of(guest.vm), guest.disk, self.account, 0o600) as disk,
            ExitStack() as sockets,
        ):
            guests.read_nothing_ahead(memory)
            words = [*suspended.options(hardware), "-name", guest.vm, "-uuid", guest.uuid]
            words += suspended.memory(hardware, memory, offset=image.record.at)
            block = f"driver=host_device,node-name=disk,filename={disk},cache.direct=on"
            words += ["-blockdev", block, *suspended.devices(hardware, guest.uuid)]
            passed = [
                sockets.enter_context(listening_at(folder / f"serial{number}", os.geteuid()))
                for number in range(hardware.serials)
            ]
            for number, one in enumerate(passed):
                words += _at(f"serial{number}", one)
                words += ["-serial", f"chardev:serial{number}"]
            if hardware.has_agent:
                passed.append(sockets.enter_context(listening_at(folder / "agent", owner)))
                words += _at("agent", passed[-1])
            words += ["-incoming", "defer"]
            qmp = guests.monitor_of(guest.vm)
            with running(words, self.account, qmp, owner, passed) as monitor:
                yield monitor


def runs(vm: str) -> bool:
    """Tell whether a VM runs that was resumed."""
    try:
        with Monitor(str(guests.monitor_of(vm))) as monitor:
            return monitor.status == "running"
    except QemuFailed:
        return False


def end(vm: str) -> None:
    """End the QEMU of a VM, if it has one."""
    with suppress(QemuFailed), Monitor(str(guests.monitor_of(vm))) as monitor:
        monitor.ask("quit")


def account(name: str) -> Account:
    """Return an account of this host.

    :raises InvalidRequest: if there is none, or it is root
    """
    try:
        found = pwd.getpwnam(name)
    except KeyError as err:
        raise InvalidRequest(f"there is no account {name}: give --account another one") from err
    if found.pw_uid == 0:
        raise InvalidRequest("QEMU does not run as root: give --account another account")
    return Account(found.pw_uid, found.pw_gid)


def program() -> str | None:
    """Return the path of QEMU; None without one."""
    return shutil.which(PROGRAM, path=_PATH)


@contextmanager
def running(
    words: Sequence[str],
    who: Account,
    path: Path,
    owner: int,
    passed: Sequence[socket.socket] = (),
    *,
    keep: bool = True,
) -> Iterator[Monitor]:
    """Run QEMU; give its monitor. What this thread is, as to huge pages, QEMU is too.

    :param path: where the monitor is to be
    :param owner: whose that is
    :param passed: sockets that QEMU has too
    :param keep: whether it goes on if all goes well
    """
    with tempfile.TemporaryFile() as said:
        with listening_at(path, owner) as listening:
            monitored = [*_at("qmp", listening), "-mon", "chardev=qmp,mode=control"]
            process = subprocess.Popen(
                [PROGRAM, *words, *monitored, *sandbox.OPTIONS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                cwd="/",
                env={"PATH": _PATH},
                start_new_session=True,
                user=who.uid,
                group=who.gid,
                extra_groups=[],
                pass_fds=[one.fileno() for one in (*passed, listening)],
            )
        try:
            # who has ended listens no more
            with Monitor(str(path)) as monitor:
                yield monitor
        except BaseException as err:
            process.kill()
            process.wait()
            said.seek(0)
            last = said.read(1000).decode(errors="replace").strip().splitlines()
            if last and isinstance(err, QemuFailed):
                raise QemuFailed(f"QEMU ended: {'; '.join(last)}") from err
            raise
        if not keep:
            process.kill()
            process.wait()


def _at(name: str, listening: socket.socket) -> list[str]:
    return ["-chardev", f"socket,id={name},fd={listening.fileno()},server=on,wait=off"]
