"""Makes what VMs wrote layers: images that lie on the image that the VM began with (Skilfish, 4.3).

::

    Commit is written       a copy of the VM has the data of this moment; the VM goes on
    bytes, hash tree        read from the copy, as a move reads them
    served, known to Volt
    Commit says "kept"      the copy goes, and the VM if this is its end

A suspended image is a commit that has the VM's memory of the same moment too: ``suspensions``. That
may take a while, so it is done on the commit's thread.

A checkpoint is a commit that can lie on an earlier one of the same VM. Then only what has changed
since is read: a hidden snapshot holds what the VM's data were, until there is a later checkpoint.

An agent that dies before "kept" leaves what the next one goes on with; the same steps may be done
again. What fails, or is not wanted any more, is undone, and Volt forgets it first.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import IO

from virtman.disk.layers import Commit, Layers, Phase
from virtman.errors import (
    CommitCancelled,
    CoordinatorUnreachable,
    DeviceBusy,
    DevicePending,
    ImageMismatch,
    ImageUnknown,
    InstanceNotServed,
    LayerExists,
    LayerUnknown,
    VirtmanError,
)
from virtman.migration import exports, held
from virtman.migration.making import Making
from virtman.migration.suspensions import Suspension, Tell
from virtman.model import layer_file, naming
from virtman.model.dirty import PORTION
from virtman.node.agent import Agent, device_path

LOG = logging.getLogger(__name__)

_SECRET_BYTES = 16
_AGAIN = 1.0
_LAST = 10.0
_PATIENCE = 5.0
"""Seconds for which a storage node may wait for what is being made, before it asks again."""

_REMEMBERED = 100
_PASSING = (CoordinatorUnreachable, DeviceBusy, DevicePending, InstanceNotServed)
"""What may be otherwise in a moment."""


@dataclass(frozen=True)
class Status:
    """How far a commit is.

    :ivar state: "reading" and "saving" the memory of a VM; "copying", "hashing", "serving"; "kept"
        once Volt knows the layer; "failed"
    :ivar done: bytes that were read, saved, copied, or hashed
    :ivar total: of so many
    :ivar length: bytes of the layer; 0 while that is not known
    :ivar note: why nothing goes on at the moment, or what went wrong; empty if all is well
    :ivar code: of the error that it failed with; empty if it did not
    """

    commit: Commit
    state: str
    done: int = 0
    total: int = 0
    length: int = 0
    note: str = ""
    code: str = ""


class _Stopped(Exception):
    """The agent ends; the next one goes on."""


class Commits:
    """A thread for each commit that is not done."""

    def __init__(self, agent: Agent, layers: Layers) -> None:
        self.agent = agent
        self.layers = layers
        self._making = Making(agent, layers)
        # Guards what follows; held for moments only.
        self._changed = threading.Condition(threading.RLock())
        self._stopped = False
        # Those of commits that have failed stay a while.
        self._statuses: dict[str, Status] = {}
        self._threads: dict[str, threading.Thread] = {}
        # Of which the copy is being created: nobody else takes these up.
        self._creating: set[str] = set()

    def start(self) -> None:
        """Serve the layers that are kept, and go on with what an earlier agent began."""
        for commit in self.layers.all():
            if commit.phase is Phase.MAKING and commit.qmp:
                self._begin(self._undone(commit))  # before it had the VM's memory
            elif commit.phase is Phase.MAKING and not self._making.has_data(commit):
                self.layers.forget(commit)  # that agent died before it had the VM's data
            else:
                self._begin(commit)

    def stop(self) -> None:
        """Go on with nothing; the next agent does."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(_LAST)

    def suspend(
        self,
        vm: str,
        name: str,
        qmp: str,
        *,
        forced: bool = False,
        saved: str = "",
        project: str = "",
    ) -> Status:
        """Begin to make a suspended image of a VM, which goes on after a moment.

        :param name: of the layer that has its disk and its memory
        :param qmp: socket at which the VM's QEMU answers nobody else
        :param saved: file with the memory of a VM that QEMU saved elsewhere; that QEMU never ran
        :param forced: although it has network cards, or somebody is logged in
        :param project: whose VMs alone may have the memory; empty for that of the VM, or of the
            image, if it was resumed
        :raises SuspendedForeign: if it was resumed from an image of another project
        :raises QemuFailed: if it does not answer
        :raises SuspendedInvalid: if it has hardware with which it cannot be resumed
        :raises NicsAttached: if it has network cards
        :raises SessionsOpen: if somebody is logged in, or a guest agent does not tell
        """
        instance = self.agent.records.get(naming.check("VM", vm))
        info = self.agent.coordinator.image(instance.image)
        suspension = Suspension(self.layers, info, qmp, forced=forced, saved=saved, wanted=project)
        return self.commit(vm, name, suspension=suspension)

    def commit(
        self,
        vm: str,
        name: str,
        *,
        final: bool = False,
        checkpoint: int = 0,
        suspension: Suspension | None = None,
    ) -> Status:
        """Begin to make a layer of what a VM wrote up to now; the VM goes on.

        What was committed already is that: it is not done again.

        :param name: of the layer; one that is being made of this VM already is gone on with
        :param final: have the VM go once the layer is kept; its device must be closed
        :param checkpoint: its number, if it is one of the VM's checkpoints
        :param suspension: saves the VM's memory of the same moment, if the layer is to have it
        :raises LayerExists: if there is an image of this name
        :raises DeviceBusy: if this is to be the VM's end, and its device is open
        """
        naming.check("VM", vm)
        naming.check("layer", name)
        naming.check("VM", f"{name}.now")  # the copy's
        self._await_created(name)
        begun = self.layers.find(name)
        if begun is not None and self._is_same(begun, vm, final=final, checkpoint=checkpoint):
            return self.show(name)
        instance = self.agent.records.get(vm)
        self._check_free(name)
        self.agent.records.check_vm(f"{name}.now")
        if final:
            self._check_closed(vm)
        if suspension is not None:
            suspension.check(vm, device_path(instance))
        origin = instance.origin or self.agent.images.info(instance.image).origin
        secret = secrets.token_hex(_SECRET_BYTES)
        since = held.latest(self.agent, self.layers, instance) if checkpoint else ""
        commit = Commit(
            name, vm, instance.image, origin, instance.size, secret, time.time(), final,
            checkpoint=checkpoint, since=since, qmp=suspension.qmp if suspension else "",
        )  # fmt: skip
        copied = partial(self.agent.create, commit.copy, original=vm)
        with self._adding(commit):
            if suspension is not None:
                return self._begin(commit, partial(suspension.save, commit, copied))
            try:
                copied()
            except BaseException:
                if self._making.has_data(commit):  # it could not be taken away again
                    self._begin(self._undone(commit))
                else:
                    self.layers.forget(commit)
                raise
        return self._begin(commit)

    def receive(self, file: IO[bytes], name: str = "") -> Status:
        """Begin to have a layer that was exported, as one that this node has made.

        :param file: what was written of it
        :param name: of the layer here; empty for the one that it had
        :raises LayerFileInvalid: if the file is of no layer, or was changed
        :raises LayerExists: if there is an image of this name
        :raises ImageUnknown: if Volt does not know its parent
        :raises ImageMismatch: if another image has its parent's name
        :raises NoSpace: if it does not fit
        """
        label = layer_file.understand(file.readline(layer_file.LONGEST))
        name = naming.check("layer", name or label.layer)
        self._await_created(name)
        self._check_free(name)
        parent = self.agent.coordinator.image(label.parent)
        if parent.origin != label.parent_origin:
            raise ImageMismatch(
                f"layer {label.layer} is of an image {label.parent} with the root hash "
                f"{label.parent_origin}, but Volt's has {parent.origin}: give that image the name"
            )
        secret = secrets.token_hex(_SECRET_BYTES)
        commit = Commit(
            name, "", parent.name, parent.origin, label.disk_size, secret, time.time(),
            has_copy=False,
        )  # fmt: skip
        with self._adding(commit):
            try:
                exports.unpack(label, file, self.layers, name)
            except BaseException:
                self.layers.forget(commit)
                raise
        return self._begin(commit)

    def file_of(self, name: str) -> Iterator[bytes]:
        """Return what ``receive`` takes for a layer, in pieces.

        :raises LayerUnknown: if this node has none that is kept
        """
        return exports.pack(self.layers, self._kept(name))

    def length_of(self, name: str) -> int:
        """Return how many bytes a layer has, for the storage node that shall have it.

        :raises LayerUnknown: if this node neither has it nor makes it
        :raises LayerComing: if that is not known yet
        """
        return self.layers.length(naming.check("layer", name), _PATIENCE)

    def part_of(self, name: str, at: int) -> bytes:
        """Return some of a layer's bytes, for the storage node that shall have it.

        :param at: where they begin
        :returns: ``PORTION`` of them, or fewer at its end
        :raises LayerUnknown: if this node neither has it nor makes it
        :raises LayerComing: if they are not made yet
        """
        return self.layers.part(naming.check("layer", name), at, PORTION, _PATIENCE)

    def _kept(self, name: str) -> Commit:
        commit = self.layers.get(naming.check("layer", name))
        if not commit.is_kept:
            raise LayerUnknown(f"layer {name} is not made yet: wait until it is kept")
        return commit

    @contextmanager
    def _adding(self, commit: Commit) -> Iterator[None]:
        """Write a commit down, which nobody else takes up meanwhile."""
        self.layers.add(commit)
        with self._changed:
            self._creating.add(commit.name)
        try:
            yield
        finally:
            with self._changed:
                self._creating.discard(commit.name)
                self._changed.notify_all()

    def show(self, name: str) -> Status:
        """Return how far a layer is, or how its commit has failed since this agent started.

        :raises LayerUnknown: if there is nothing to tell
        """
        naming.check("layer", name)
        with self._changed:
            found = self._statuses.get(name)
        if found is None:
            raise LayerUnknown(f"this node has made no layer {name}, nor does it make one")
        return found

    def all(self) -> Sequence[Status]:
        """Return all layers of this node, and commits that have failed."""
        with self._changed:
            return sorted(self._statuses.values(), key=lambda one: one.commit.name)

    def remove(self, name: str, *, elsewhere: bool = False) -> bool:
        """Have a layer no more, or a commit given up; return whether that is done already.

        :param elsewhere: if hosts, VMs or other layers need it, a host that has all of it stands
            for this one
        :raises LayerUnknown: if there is none
        :raises ImageInUse: if hosts, VMs or other layers need it
        :raises CoordinatorRefused: if they need it elsewhere, and no host has all of it
        """
        self._await_created(naming.check("layer", name))
        commit = self.layers.get(name)
        after = Phase.UNDOING
        if commit.phase in (Phase.KEPT, Phase.LEAVING):
            self._making.forget_at_volt(commit, elsewhere)
            after = Phase.LEAVING if elsewhere else after
        with self._changed:
            self.layers.change(name, phase=after)
            self._changed.notify_all()
            thread = self._threads.get(name) or self._spawn(name)
        thread.join(_LAST)
        if self.layers.find(name) is not None:
            return False
        LOG.info("layer %s is removed", name)
        return True

    def _undone(self, commit: Commit) -> Commit:
        """Have a commit undone by its thread."""
        return self.layers.change(commit.name, phase=Phase.UNDOING)

    def _await_created(self, name: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: name not in self._creating)

    # How it goes on: on the commit's thread.

    def _begin(self, commit: Commit, save: Callable[[Tell], Commit] | None = None) -> Status:
        """Have a thread go on with a commit.

        :param save: has the memory of a VM first, and returns the commit with what is known of it
        """
        state = "copying" if save is None else "saving"
        status = Status(commit, "kept" if commit.phase is Phase.KEPT else state)
        with self._changed:
            ended = [name for name in self._statuses if self.layers.find(name) is None]
            for name in ended[:-_REMEMBERED]:
                del self._statuses[name]
            self._statuses[commit.name] = status
            self._spawn(commit.name, save)
        return status

    def _spawn(self, name: str, save: Callable[[Tell], Commit] | None = None) -> threading.Thread:
        thread = threading.Thread(
            target=self._run, args=(name, save), name=f"layer {name}", daemon=True
        )
        self._threads[name] = thread
        thread.start()
        return thread

    def _run(self, name: str, save: Callable[[Tell], Commit] | None) -> None:
        if save is not None:
            self._save(name, save)
        settled = False
        while not self._has_ended(name, settled):
            commit = self.layers.get(name)
            try:
                self._step(commit)
                settled = commit.phase is Phase.KEPT
            except _Stopped:
                continue
            except _PASSING as err:
                self._wait(name, err)
            except Exception as err:
                self._fail(name, err)

    def _save(self, name: str, save: Callable[[Tell], Commit]) -> None:
        """Have the memory of a VM, which goes on; what fails is not tried again."""
        try:
            self.layers.advance(save(partial(self._tell, name)))
        except _Stopped:
            LOG.info("layer %s: its VM is not saved, as the agent ends", name)
        except Exception as err:
            self._fail(name, err)

    def _has_ended(self, name: str, settled: bool) -> bool:
        """Tell whether there is nothing left to do: then somebody else begins, if at all."""
        with self._changed:
            commit = self.layers.find(name)
            is_done = commit is None or (settled and commit.phase is Phase.KEPT)
            if is_done or self._stopped:
                del self._threads[name]
                if commit is None and self._statuses[name].state != "failed":
                    del self._statuses[name]
                return True
            return False

    def _step(self, commit: Commit) -> None:
        """Do what belongs to the phase."""
        match commit.phase:
            case Phase.MAKING:
                self._making.make(commit, partial(self._tell, commit.name))
            case Phase.KEPT:
                self._making.serve(commit)
                note = self._making.finish(commit)
                length = self.layers.size(commit.name)
                self._note(commit.name, state="kept", length=length, note=note)
            case Phase.UNDOING:
                self._making.undo(commit)
            case Phase.LEAVING:
                self._making.clear_away(commit)

    def _fail(self, name: str, err: Exception) -> None:
        """Have a commit undone that cannot succeed; anything else is tried again."""
        if not isinstance(err, VirtmanError):
            LOG.error("layer %s", name, exc_info=err)
            err = VirtmanError(f"{type(err).__name__}: {err}")
        with self._changed:
            commit = self.layers.get(name)
            if commit.phase is Phase.MAKING:
                LOG.warning("VM %s does not become layer %s: %s", commit.vm, name, err)
                self._note(name, state="failed", note=str(err), code=err.code)
                self._undone(commit)
                return
        if not isinstance(err, CommitCancelled):
            self._wait(name, err)

    def _wait(self, name: str, err: VirtmanError) -> None:
        """Let a moment pass, after which something may be otherwise."""
        with self._changed:
            if self._statuses[name].note != str(err):
                LOG.warning("layer %s: %s", name, err)
            self._note(name, note=str(err))
            self._changed.wait(_AGAIN)

    def _tell(self, name: str, state: str, done: int, total: int) -> None:
        """Note how far a commit is; end what is being done for it if it is not to go on."""
        if self._stopped:
            raise _Stopped
        commit = self.layers.wanted(name)
        length = self.layers.size(name)
        self._note(name, commit=commit, state=state, done=done, total=total, length=length)

    def _note(self, name: str, **changed: object) -> None:
        with self._changed:
            status = replace(self._statuses[name], **{"note": ""} | changed)  # type: ignore[arg-type]
            self._statuses[name] = status

    # What is asked before.

    def _is_same(self, begun: Commit, vm: str, *, final: bool, checkpoint: int) -> bool:
        """Tell whether a commit is what is asked for, also after it was kept.

        After a final one the VM has to be gone: that of one which stays is still to end.
        """
        if begun.vm != vm or begun.checkpoint != checkpoint or not begun.lasts:
            return False
        if begun.phase is Phase.MAKING or begun.final:
            return begun.final == final
        return not checkpoint and final != (vm in self.agent.records.inventory().instances)

    def _check_free(self, name: str) -> None:
        try:
            self.agent.coordinator.image(name)
        except ImageUnknown:
            return
        raise LayerExists(f"Volt has an image {name} already: choose another name")

    def _check_closed(self, vm: str) -> None:
        stores = self.agent.stores
        if stores.devices.vm(self.agent.records.get(vm)).is_open():
            raise DeviceBusy(f"the device of VM {vm} is open: shut the VM down before its end")
