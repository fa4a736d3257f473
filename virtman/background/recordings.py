"""Records what VMs read of an image while somebody says so, as the profile of a workload."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from enum import StrEnum

from virtman.background.boots import Boots
from virtman.errors import (
    InvalidRequest,
    ProfileUnbound,
    RecordingInProgress,
    RecordingUnknown,
    VirtmanError,
)
from virtman.image.boot import Boot, piece_size
from virtman.image.recording import Recording
from virtman.model import naming
from virtman.model.profile import BOOT
from virtman.node.agent import Agent

LONGEST = 24 * 3600
"""Seconds that are recorded at most: whoever began it may have forgotten it."""


class State(StrEnum):
    """How far a recording is."""

    RECORDING = "recording"
    STORED = "stored"
    FAILED = "failed"


@dataclass(frozen=True)
class Recorded:
    """What was recorded of a VM by now.

    :ivar pieces: that were read
    :ivar bytes: of these
    :ivar seconds: since it began, or for which it was recorded
    :ivar runs: of which the profile is made, once it is stored
    :ivar detail: why it failed
    """

    vm: str
    image: str
    workload: str
    state: State
    pieces: int
    bytes: int
    seconds: float
    runs: int
    detail: str


class Recordings:
    """One for each VM at most, and one for each image: all VMs of an image read through one device.

    What one of them reads is thus recorded for the others' too.
    """

    def __init__(self, agent: Agent, boots: Boots) -> None:
        self.agent = agent
        self.boots = boots
        # Guards those that there are.
        self._lock = threading.Lock()
        self._found: dict[str, _Session] = {}

    def begin(self, vm: str, workload: str, seconds: int | None = None) -> Recorded:
        """Record from now on, for so many seconds, or until told.

        :raises InstanceUnknown: if there is no such VM
        :raises ProfileUnbound: if its image can have no profile
        :raises RecordingInProgress: if one of this image goes on
        :raises InvalidRequest: if it is the workload that is recorded by itself, or takes long
        """
        if naming.check("workload", workload) == BOOT:
            raise InvalidRequest(
                f"workload {BOOT} is recorded by itself, from an image's first boots: "
                "give another name"
            )
        seconds = LONGEST if seconds is None else seconds
        if not 0 < seconds <= LONGEST:
            raise InvalidRequest(f"{seconds} seconds: give from 1 to {LONGEST}")
        image = self.agent.show(vm).instance.image
        attachment = self.agent.images.attached(image)
        if attachment.info.tree is None:
            raise ProfileUnbound(
                f"image {image} has no hash tree, so it can have no profile: "
                "remove it and add it with a hash tree"
            )
        new = self.boots.options.piece_of(attachment.info)
        piece = piece_size(self.agent.coordinator, attachment.info, workload, new)
        with self._lock:
            busy = [one for one in self._found.values() if one.image == image and one.goes_on()]
            if busy:
                raise RecordingInProgress(
                    f"workload {busy[0].workload} of image {image} is being recorded, with VM "
                    f"{busy[0].vm}: end it first"
                )
            boot = self.boots.count_anew(attachment)
            found = self._found[vm] = _Session(vm, workload, boot, piece, seconds)
        found.start()
        return found.recorded()

    def show(self, vm: str) -> Recorded:
        """Return what was recorded of a VM last; raises RecordingUnknown."""
        return self._of(vm).recorded()

    def end(self, vm: str) -> Recorded:
        """Have a recording stored soon; raises RecordingUnknown."""
        found = self._of(vm)
        found.told.set()
        return found.recorded()

    def _of(self, vm: str) -> _Session:
        with self._lock:
            found = self._found.get(naming.check("VM", vm))
        if found is None:
            raise RecordingUnknown(
                f"nothing was recorded of VM {vm} since the agent started: begin with "
                "'virtman profile record'"
            )
        return found


class _Session:
    """One recording, on a thread of its own."""

    def __init__(self, vm: str, workload: str, boot: Boot, piece: int, seconds: int) -> None:
        self.vm = vm
        self.image = boot.attachment.info.name
        self.workload = workload
        self.told = threading.Event()
        self._boot = boot
        self._recording = Recording(boot.attachment, boot.reads, piece)
        self._begin = time.monotonic()
        self._longest = seconds
        self._end: float | None = None
        self._runs = 0
        self._detail = ""
        self._thread = threading.Thread(
            target=self._run, name=f"recording {self.image}", daemon=True
        )

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def goes_on(self) -> bool:
        """Tell whether something is still to be recorded, or stored."""
        return self._end is None or self._thread.is_alive()

    def recorded(self) -> Recorded:
        """Return what there is by now."""
        state = State.RECORDING
        if not self.goes_on():
            state = State.STORED if self._runs else State.FAILED
        pieces = len(self._recording.run)
        return Recorded(
            self.vm,
            self.image,
            self.workload,
            state,
            pieces,
            pieces * self._recording.piece,
            round((self._end or time.monotonic()) - self._begin, 1),
            self._runs,
            self._detail,
        )

    def _run(self) -> None:
        try:
            self._runs = self._boot.record(self._recording, self.workload, self._is_over)
            if not self._runs:
                self._detail = (
                    "its agent stopped"
                    if self._recording.run
                    else "VMs read nothing that had to be fetched: record from a cold image"
                )
        except (VirtmanError, OSError) as err:
            self._detail = str(err)
        finally:
            self._end = self._end or time.monotonic()

    def _is_over(self) -> bool:
        is_late = time.monotonic() - self._begin >= self._longest
        is_over = self.told.is_set() or is_late or self.vm not in self._boot.attachment.users
        if is_over:
            self._end = time.monotonic()
        return is_over
