"""Writes the memory and the device state of a running VM to a file, whatever it was started with.

::

    QEMU of the VM  --- pair of sockets --->  QEMU of the agent  --->  a file, and its state
      runs, then stands still                    runs no instruction

The VM is migrated to a second QEMU, whose memory is a shared mapping of the file: so pages of zeros
stay holes of it. That one never runs the guest. It is asked for its state without the memory, and
ends. They may be of different accounts, so the VM's is given its socket open. The VM stands still
from the end of the migration until it is told to go on. If the second one dies before, the VM goes
on by itself.

A VM that QEMU saved elsewhere is loaded by the second one, from its file; whoever tells what it
consists of never ran.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from virtman.errors import QemuFailed, SuspendedInvalid
from virtman.model import suspended
from virtman.model.suspended import Hardware
from virtman.qemu import inspection, sandbox
from virtman.qemu.qmp import Monitor, Qemu, listen

_FAST = 1 << 40
_SOCKET = "virtman-memory"
_PATIENCE = 30.0
_LOOK = 0.05
_UNDER_WAY = ("setup", "active", "device", "pre-switchover", "cancelling")
_BUSY = 20.0
"""Seconds after which a VM that writes faster than it can be read stands still meanwhile."""


class Saving:
    """A VM that is saved.

    :param monitor: of the VM
    :param hardware: what it consists of
    :param disk: bytes
    :param file: that takes the memory, and the state behind it; there is none of that name
    """

    def __init__(self, monitor: Monitor, hardware: Hardware, disk: int, file: Path) -> None:
        self.monitor = monitor
        self.hardware = hardware
        self._disk = disk
        self._file = file

    @contextmanager
    def converter(self) -> Iterator[Monitor]:
        """Run the second QEMU; it ends with this, and with the agent."""
        with (
            tempfile.TemporaryDirectory(prefix="virtman-") as folder,
            tempfile.TemporaryFile() as said,
        ):
            self._folder = Path(folder)
            self._sends, receives = socket.socketpair()
            self._incoming = f"fd:{receives.fileno()}"
            with receives:
                words = [*self._command(), "-incoming", "defer"]
                process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", "--no-new-privs", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    pass_fds=[receives.fileno()],
                )
            try:
                with Monitor(
                    str(self._folder / "qmp"), _PATIENCE, lambda: process.poll() is None
                ) as monitor:
                    self._check_same(monitor)
                    yield monitor
            except QemuFailed as err:
                said.seek(0)
                last = said.read(1000).decode(errors="replace").strip().replace("\n", "; ")
                raise QemuFailed(f"{err}; {last}" if last else str(err)) from err
            finally:
                self._sends.close()
                process.kill()
                process.wait()

    @contextmanager
    def still(self, converter: Monitor, tell: Callable[[int, int], None]) -> Iterator[None]:
        """Have the memory in the file, and the VM stand still meanwhile.

        :param tell: called now and then with the bytes that are there, and of how many; what it
            raises ends it
        """
        stopped, begin = False, time.monotonic()

        def look(done: int, total: int) -> None:
            nonlocal stopped
            tell(done, total)
            if time.monotonic() - begin > _BUSY and not stopped:
                self.monitor.ask("stop")
                stopped = True

        self.monitor.leave_memory_out(False)  # as it was, if it was resumed itself
        self.monitor.ask("migrate-set-parameters", **{"max-bandwidth": _FAST})
        converter.ask("migrate-incoming", uri=self._incoming)
        try:
            self.monitor.give(_SOCKET, self._sends.fileno())
            self._sends.close()
            self.monitor.ask("migrate", uri=f"fd:{_SOCKET}")
            self.monitor.await_migrated(look)
            yield
        finally:
            go_on(self.monitor)

    def state(self, converter: Monitor) -> bytes:
        """Return the device state, once the memory is in the file; then that is written too."""
        converter.await_migrated()
        converter.leave_memory_out(True)
        with listen(self._folder / "state") as listening:
            converter.ask("migrate", uri=f"unix:{self._folder / 'state'}")
            with listening.accept()[0] as connection:
                state = bytearray()
                while part := connection.recv(1 << 20):
                    state += part
                    if len(state) > suspended.MOST_STATE:
                        raise SuspendedInvalid(
                            f"its device state has more than {suspended.MOST_STATE} bytes"
                        )
        converter.await_migrated()
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, state, self.hardware.memory)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return bytes(state)

    def _command(self) -> list[str]:
        os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        hardware = self.hardware
        words = ["qemu-system-x86_64", *suspended.options(hardware)]
        words += suspended.memory(hardware, str(self._file), offset=None)
        words += ["-blockdev", f"driver=null-co,node-name=disk,size={self._disk},read-zeroes=on"]
        words += suspended.devices(hardware, "auto")
        words += ["-serial", "null"] * hardware.serials
        words += ["-chardev", "null,id=agent"] if hardware.has_agent else []
        words += ["-qmp", f"unix:{self._folder / 'qmp'},server=on,wait=off"]
        return [*words, *sandbox.OPTIONS, "-S"]

    def _check_same(self, converter: Monitor) -> None:
        other = inspection.hardware(converter)
        for name in ("qemu", "features"):
            if getattr(other, name) != getattr(self.hardware, name):
                what = "QEMU" if name == "qemu" else "processor"
                raise SuspendedInvalid(
                    f"a VM that is made the same has another {what}: one that was given features "
                    "beyond its model's, or is of an earlier version, cannot be had again"
                )


def go_on(monitor: Qemu) -> None:
    """Have a VM go on that stands still because it was saved; one that runs does already."""
    deadline = time.monotonic() + _PATIENCE
    while monitor.ask("query-migrate").get("status") in _UNDER_WAY and time.monotonic() < deadline:
        monitor.ask("migrate_cancel")  # whoever it went to has gone
        time.sleep(_LOOK)
    if monitor.status in ("postmigrate", "paused"):
        monitor.go_on()
