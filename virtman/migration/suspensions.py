"""Has a VM's memory saved at the moment of a commit, so that the layer is a suspended image.

::

    Commit is written       says where the VM's QEMU listens
    memory is read ahead    of a VM that was resumed: it lacks what it has not touched
    the VM stands still     its memory is in a file, as ``virtman.qemu.saving`` does it
    copy                    of the VM's disk, of the same moment
    the VM goes on
    device state            behind the memory in the file
    Commit is written       says what the VM consists of; from now on it is as any commit

An agent that dies before that has the next one let the VM go on, and undo the rest.
"""

from __future__ import annotations

import hashlib
import logging
import os
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from virtman import sparse
from virtman.coordinator.interface import ImageInfo
from virtman.disk.layers import Commit, Layers
from virtman.errors import NicsAttached, QemuFailed, SessionsOpen, SuspendedInvalid
from virtman.model import pieces, suspended
from virtman.model.dirty import CHUNK
from virtman.model.naming import Device
from virtman.model.suspended import Hardware, Suspended
from virtman.qemu import guest_agent, guests, inspection, saving
from virtman.qemu.qmp import Monitor
from virtman.qemu.saving import Saving
from virtman.stack import page_cache
from virtman.stack.mapped import explained

LOG = logging.getLogger(__name__)

_PART, _AT_ONCE = 1 << 20, 16
"""Bytes of memory in a request, and requests that are waited for together."""

_NEVER_RAN = ("inmigrate", "prelaunch")

Tell = Callable[[str, int, int], None]
"""Takes what is done, and bytes of it: how many are done, and of how many.

It raises what ends that, if it is not to go on.
"""


class Suspension:
    """What saves a VM.

    :param layers: of this node
    :param image: the VM's
    :param qmp: socket at which its QEMU answers nobody else
    :param forced: although it has network cards, or somebody is logged in
    :param saved: file in which QEMU saved it elsewhere; empty if it runs
    :param wanted: whose VMs alone may have the memory; see ``project``
    """

    def __init__(
        self,
        layers: Layers,
        image: ImageInfo,
        qmp: str,
        *,
        forced: bool = False,
        saved: str = "",
        wanted: str = "",
    ) -> None:
        self.qmp = qmp
        self._layers = layers
        self._image = image
        self._forced = forced
        self._saved = saved
        self._project = project(image, qmp, wanted)

    def check(self, vm: str, device: str) -> None:
        """See that a VM can be suspended, and what goes on from that be of use.

        :param device: of its disk
        :raises QemuFailed: if its QEMU does not answer
        :raises SuspendedInvalid: if it cannot, or no other VM can have the same hardware
        :raises NicsAttached: if it has network cards
        :raises SessionsOpen: if somebody is logged in, or a guest agent does not tell
        """
        with Monitor(self.qmp) as monitor:
            hardware = inspection.hardware(monitor)
            self._check_itself(monitor, vm, device)
            if not self._forced:
                _check_closed(monitor, hardware)

    def save(self, commit: Commit, copy: Callable[[], object], tell: Tell) -> Commit:
        """Return a commit whose VM's memory is in its file.

        :param copy: has the VM's disk of this moment
        :param tell: called now and then; what it raises ends it, and the VM goes on
        :raises QemuFailed: if QEMU does not hand its state over
        :raises KernelFailure: if the VM was resumed, and memory that it lacks cannot be read
        :raises NoSpace: if the memory does not fit
        """
        file = self._layers.memory(commit.name)
        with Monitor(self.qmp) as monitor:
            hardware = inspection.hardware(monitor)
            self._layers.check_room(commit.name, hardware.memory)
            save = Saving(monitor, hardware, commit.disk_size, file)
            if not self._saved:
                self._read_ahead(monitor, partial(tell, "reading"))
            with save.converter() as converter:
                if self._saved:
                    converter.load(self._saved)
                    copy()
                else:
                    with save.still(converter, partial(tell, "saving")):
                        copy()
                state = save.state(converter)
        digest = hashlib.sha256(state).hexdigest()
        # where it is to be is known once it is known what the layer lies on
        at = suspended.place(0)
        made = Suspended(at, len(state), digest, hardware, self._project)
        return replace(commit, qmp="", suspended=made)

    def _check_itself(self, monitor: Monitor, vm: str, device: str) -> None:
        drive = inspection.drive(monitor)
        is_same = os.path.exists(drive) and os.path.samefile(drive, device)
        if not is_same and drive != guests.disk_of(vm):
            raise SuspendedInvalid(f"the disk of the QEMU at {self.qmp} is {drive}, not {device}")
        status = monitor.status
        if self._saved and status not in _NEVER_RAN:
            raise SuspendedInvalid(
                f"the QEMU at {self.qmp} is {status}: it must tell what the saved VM consists of, "
                "and never have run; start it with -incoming defer"
            )
        if not self._saved and status != "running":
            raise SuspendedInvalid(f"the VM is {status}: have it run first")

    def _read_ahead(self, monitor: Monitor, tell: Callable[[int, int], None]) -> None:
        """Have all memory of a VM here that was resumed, before its QEMU asks for it page by page.

        A page that cannot be read would end that QEMU.
        """
        record = self._image.layer.suspended if self._image.layer else None
        if record is None or not inspection.has_memory_in_file(monitor):
            return
        device, memory = Device(self._image.name, "base").node, record.hardware.memory
        end = record.at + memory
        parts = pieces.parts(range(record.at // _PART, -(-end // _PART)), _PART, end, _PART)
        with explained(f"reading the memory of {device}"):
            for done in range(0, len(parts), _AT_ONCE):
                tell(done * _PART, memory)
                page_cache.fetch(device, parts[done : done + _AT_ONCE])


def _check_closed(monitor: Monitor, hardware: Hardware) -> None:
    """See that a VM has nothing open that all who go on from it would have too."""
    if hardware.nics:
        cards = ", ".join(one.mac for one in hardware.nics)
        raise NicsAttached(
            f"the VM has network cards ({cards}): all VMs that are resumed would have these "
            "addresses, and the VM's connections. Unplug the cards first, and plug in others "
            "after each resume; or force it, and the cards stay without a network"
        )
    channel = inspection.guest_agent(monitor)
    users = guest_agent.users(channel) if channel else []
    if users:
        raise SessionsOpen(
            f"there are sessions of {', '.join(users)}: all VMs that are resumed would have "
            "them, with what is open and decrypted there. Have them end, or force it"
        )


def project(image: ImageInfo, qmp: str, wanted: str) -> str:
    """Return whose VMs alone may have the memory of a VM; empty if all may.

    What a VM has of its image's memory stays in the project of that.

    :param image: the VM's
    :param qmp: socket at which its QEMU listens
    :param wanted: empty for that of the VM, or of the image, if it was resumed
    :raises SuspendedForeign: if the image is of another project
    """
    found = suspended.check_project(wanted) or guests.project_at(qmp) or image.project
    if image.layer is not None and image.layer.suspended is not None:
        suspended.check_same(image.name, image.layer.suspended, found)
    return found


def go_on(commit: Commit) -> None:
    """Let a VM go on that an earlier agent was saving; one that has ended needs nothing."""
    try:
        with Monitor(commit.qmp) as monitor:
            saving.go_on(monitor)
    except QemuFailed as err:
        LOG.warning("VM %s: %s", commit.vm, err)


class Memory:
    """The memory of a VM, and its device state, on the way into a layer; chunks of zeros are none.

    :param commit: of that layer; it need not be one of a suspended image
    :ivar chunks: of the layer's disk, in order
    """

    def __init__(self, layers: Layers, commit: Commit) -> None:
        self._file = layers.memory(commit.name)
        self._first = 0
        self.chunks = array("Q")
        if commit.suspended is not None:
            self._first = commit.suspended.at // CHUNK
            self.chunks.extend(self._first + number for number, _ in self._read())

    def content(self) -> Iterator[bytes]:
        """Return what the chunks have, in order."""
        if self.chunks:
            yield from (content for _, content in self._read())

    def _read(self) -> Iterator[tuple[int, bytes]]:
        descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            end, done = os.fstat(descriptor).st_size, 0
            for start, stop in sparse.runs(descriptor, 0, end):
                for number in range(max(start // CHUNK, done), -(-stop // CHUNK)):
                    content = os.pread(descriptor, CHUNK, number * CHUNK)
                    if any(content):
                        yield number, content
                    done = number + 1
        finally:
            os.close(descriptor)
