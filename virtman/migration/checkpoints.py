"""Commits VMs again and again, so that there is something to go back to (ACStor, 3.7.2).

A schedule is on record for each such VM. What its checkpoints are the records of layers tell, and
what is to be done next follows from both: so each look can be the first one of a new agent.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from virtman import atomic_file
from virtman.disk.layers import Commit
from virtman.errors import (
    CheckpointsUnknown,
    CoordinatorUnreachable,
    ImageInUse,
    InvalidRequest,
    LayerExists,
    LayerUnknown,
    VirtmanError,
)
from virtman.migration import held
from virtman.migration.commits import Commits, Status
from virtman.model import naming
from virtman.periodic import Periodic

LOG = logging.getLogger(__name__)

KEEP = 3
"""Checkpoints that stay if nothing else is said."""

_LOOK = 5.0


@dataclass(frozen=True)
class Schedule:
    """How a VM is checkpointed.

    :ivar every: seconds from one checkpoint to the next; 0 if each one is asked for
    :ivar keep: so many of the latest ones stay
    """

    vm: str
    every: int = 0
    keep: int = KEEP


@dataclass(frozen=True)
class Shown:
    """A VM that is checkpointed.

    :ivar layers: its checkpoints that are kept, the earliest first
    :ivar note: why the last one was not made; empty if all is well
    """

    schedule: Schedule
    layers: Sequence[Commit]
    note: str


class Checkpoints:
    """Those of this node's VMs.

    :param folder: survives a reboot
    :param clock: returns seconds since 1970
    """

    def __init__(
        self, commits: Commits, folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self.commits = commits
        self.layers = commits.layers
        self.folder = folder
        self._clock = clock
        # Guards the schedules and their files; held for moments only.
        self._lock = threading.Lock()
        self._schedules: dict[str, Schedule] = {}
        # By VM, of this agent: when the last one was tried, its name, and why none was begun.
        self._tried: dict[str, float] = {}
        self._begun: dict[str, str] = {}
        self._notes: dict[str, str] = {}
        self._rounds = Periodic("checkpoints", self.look, _LOOK)

    def prepare(self) -> None:
        """Make the folder, and read the schedules."""
        atomic_file.prepare(self.folder)
        for file in self.folder.glob("*.json"):
            found = Schedule(**json.loads(file.read_text()))
            self._schedules[found.vm] = found

    def start(self) -> None:
        """Begin."""
        self._rounds.start()

    def stop(self) -> None:
        """Look no more; the next agent does."""
        self._rounds.stop()

    def make(self, vm: str, every: int | None = None, keep: int | None = None) -> Status:
        """Begin to make a checkpoint of a VM now, and more of them by a schedule.

        One that is being made already is the one.

        :param every: seconds from one to the next; 0 for none by itself; None for as before
        :param keep: how many of the latest stay; None for as before, or else ``KEEP``
        :raises InstanceUnknown: if there is no such VM
        :raises InvalidRequest: if none is to be kept
        """
        self.commits.agent.records.get(naming.check("VM", vm))
        if keep == 0:
            raise InvalidRequest("keep 0: at least one checkpoint has to stay")
        before = self._schedules.get(vm)
        schedule = before or Schedule(vm)
        every = schedule.every if every is None else every
        self._put(replace(schedule, every=every, keep=keep or schedule.keep))
        try:
            return self._make(vm)
        except BaseException:
            if before is not None:
                self._put(before)
            else:
                self._forget(vm)
            raise

    def end(self, vm: str) -> None:
        """Make no more checkpoints of a VM; those that there are stay.

        :raises CheckpointsUnknown: if none are made
        """
        if naming.check("VM", vm) not in self._schedules:
            raise CheckpointsUnknown(f"no checkpoints are made of VM {vm}")
        self._forget(vm)
        self._let_go()

    def all(self) -> Sequence[Shown]:
        """Return the VMs that are checkpointed, by name."""
        with self._lock:
            schedules = sorted(self._schedules.values(), key=lambda one: one.vm)
        return [Shown(one, self._kept(one.vm), self._note(one.vm)) for one in schedules]

    def look(self) -> None:
        """Make the checkpoints that are due, and take away what is not needed any more."""
        with self._lock:
            schedules = list(self._schedules.values())
        for schedule in schedules:
            try:
                self._look_after(schedule)
            except (VirtmanError, OSError) as err:
                LOG.warning("checkpoints of VM %s: %s", schedule.vm, err)
                self._notes[schedule.vm] = str(err)
        self._let_go()

    def _look_after(self, schedule: Schedule) -> None:
        vm = schedule.vm
        if vm not in self.commits.agent.records.inventory().instances:
            LOG.info("VM %s is gone: no more checkpoints are made of it", vm)
            self._forget(vm)
            return
        if self._is_due(schedule):
            self._make(vm)
        self._prune(self._kept(vm)[: -schedule.keep])

    def _is_due(self, schedule: Schedule) -> bool:
        there = self.layers.checkpoints(schedule.vm)
        last = self._tried.get(schedule.vm, there[-1].created_at if there else 0.0)
        # a clock that was set back stops nothing
        return schedule.every > 0 and not last <= self._clock() < last + schedule.every

    def _make(self, vm: str) -> Status:
        """Begin to make the next checkpoint, or go on with one that is being made."""
        self._tried[vm] = self._clock()
        there = self.layers.checkpoints(vm)
        number = there[-1].checkpoint + there[-1].is_kept if there else 1
        while True:
            try:
                status = self.commits.commit(vm, f"{vm}.{number}", checkpoint=number)
            except LayerExists:
                number += 1  # another node had a VM of this name
                continue
            self._notes.pop(vm, None)
            self._begun[vm] = status.commit.name
            return status

    def _prune(self, old: Sequence[Commit]) -> None:
        """Remove checkpoints, the latest first; what somebody needs stays until the next look."""
        for one in reversed(old):
            if any(other.image == one.name for other in self.layers.all()):
                continue
            try:
                self.commits.remove(one.name)
            except (CoordinatorUnreachable, ImageInUse, LayerUnknown) as err:
                LOG.debug("checkpoint %s stays: %s", one.name, err)

    def _let_go(self) -> None:
        """Have snapshots held only of those since which the next ones will read what changed."""
        with self._lock:
            vms = set(self._schedules)
        # as all of them were at one moment: one that is made just now becomes the latest
        found = self.layers.checkpoints()
        latest = {one.vm: one.name for one in found if one.is_kept and one.vm in vms}
        needed = {*latest.values(), *(one.since for one in found if not one.is_kept)}
        for one in found:
            if one.is_kept and one.name not in needed:
                held.let_go(self.commits.agent, one)

    def _kept(self, vm: str) -> Sequence[Commit]:
        return [one for one in self.layers.checkpoints(vm) if one.is_kept]

    def _note(self, vm: str) -> str:
        """Return why there is no new checkpoint of a VM."""
        try:
            return self._notes.get(vm) or self.commits.show(self._begun.get(vm, vm)).note
        except LayerUnknown:
            return ""

    def _put(self, schedule: Schedule) -> None:
        with self._lock:
            atomic_file.write(self._file(schedule.vm), json.dumps(asdict(schedule)).encode())
            self._schedules[schedule.vm] = schedule

    def _forget(self, vm: str) -> None:
        with self._lock:
            atomic_file.remove(self._file(vm))
            for table in (self._schedules, self._tried, self._begun, self._notes):
                table.pop(vm, None)

    def _file(self, vm: str) -> Path:
        return self.folder / f"{vm}.json"
