"""A virtual machine in a node: QEMU on a device, and what the guest says of its disk."""

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from lab.errors import DeadlinePassed, LabError
from lab.node import Node
from lab.waiting import wait_until

MEMORY = 96  # MiB; the guest image does not boot with less
HOST_MEMORY = 200  # MiB that one running guest costs its node

_BUILD = Path(__file__).parent / "images/guest/build"
_LOOK = 3.0  # seconds between two looks whether QEMU still runs
_LINE = re.compile(r"VIRTMAN-GUEST (\w+) (.*)")


class GuestFailed(LabError):
    """A guest found its disk wrong, or did not get as far as saying so."""


def guest_image() -> Path:
    """Return the raw disk of the current recipe, built first if the cache lacks it.

    `guest.json` beside it holds its size in bytes and its SHA-256.  Whoever
    boots it does so from a copy or through a snapshot: the file is shared.
    """
    built = subprocess.run([_BUILD], stdout=subprocess.PIPE, text=True, check=True)
    return Path(built.stdout.strip())


@dataclass(frozen=True)
class Report:
    """What a guest printed: whether all was well, and its fields by name."""

    ok: bool
    fields: dict[str, str]


def parse(console: str) -> Report | None:
    """Return the report in a guest's console output; None while there is none."""
    match = _LINE.search(console)
    if match is None or "\n" not in console[match.start() :]:
        return None
    fields = dict(word.split("=", 1) for word in match[2].split() if "=" in word)
    return Report(match[1] == "ready", fields)


class Guest:
    """One VM; its console is kept in the node's share.

    :param keeps: whether what it writes goes to the device, and not to a file that ends with it
    """

    def __init__(self, node: Node, name: str, device: str, *, keeps: bool = True):
        self.node = node
        self.name = name
        self.device = device
        self._keeps = keeps
        self._log = f"{name}.console"
        self._pid: int | None = None
        self._started = 0.0

    def boot(self, *options: str, console: str = "") -> None:
        """Start QEMU, perhaps with more options, without waiting for the guest.

        :param console: path of a socket at which one can talk to the guest; empty for none
        """
        self._started = time.monotonic()
        drive = f"file={self.device},format=raw,if=none,id=disk,cache=none"
        if not self._keeps:
            drive += ",snapshot=on"
        serial, log = ["-serial", "stdio"], self._log
        if console:
            kept = f"socket,id=console,path={console},server=on,wait=off,logfile=/host/{log}"
            serial, log = ["-chardev", kept, "-serial", "chardev:console"], f"{self.name}.qemu"
        self._pid = self.node.spawn(
            [
                *("qemu-system-x86_64", "-machine", "pc", "-accel", "tcg,thread=single,tb-size=32"),
                *("-m", str(MEMORY), "-nodefaults", "-display", "none", *serial),
                *("-drive", drive, "-device", f"virtio-blk-pci,drive=disk,serial={self.name}"),
                *options,
            ],
            log=log,
        )

    @property
    def console(self) -> str:
        """All that the guest printed."""
        file = self.node.share / self._log
        return file.read_text(errors="replace") if file.exists() else ""

    def wait(self, deadline: float) -> tuple[Report, float]:
        """Wait for the guest's report; return it and the seconds since the start.

        Raises GuestFailed with the console's end if there is none in time.
        """
        looked = time.monotonic()

        def reported() -> bool:
            nonlocal looked
            if parse(self.console) is not None:
                return True
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                if not self._runs():
                    raise GuestFailed(f"QEMU ended before guest {self.name} said a word")
            return False

        try:
            wait_until(reported, f"a word of guest {self.name}", deadline, 0.1)
        except (DeadlinePassed, GuestFailed) as err:
            tail = "\n".join(self.console.splitlines()[-20:])
            raise GuestFailed(f"{err}; its console ends with:\n{tail}") from err
        report = parse(self.console)
        assert report is not None
        return report, time.monotonic() - self._started

    def _runs(self) -> bool:
        """Tell whether QEMU runs; raises NodeLost or NoSuchBed if the node does not."""
        return self.node.run(["test", "-e", f"/proc/{self._pid}"], check=False).status == 0

    def read_bytes(self) -> int:
        """Return how many bytes the guest has read from its device, its own ones too."""
        return self.node.read_bytes(self.device)

    def stop(self) -> None:
        """End QEMU and wait until it let go of the device."""
        if self._pid is None:
            return
        self.node.run(["kill", str(self._pid)], check=False)
        wait_until(lambda: not self._runs(), f"the end of guest {self.name}", 20)
        self._pid = None
