"""What is done for a commit, step by step; each may be done again.

An agent that dies in one leaves what the next one goes on with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from virtman import source
from virtman.coordinator.interface import Layer
from virtman.disk.layers import Commit, Layers, Phase
from virtman.errors import DeviceBusy, ImageInUse, ImageUnknown, InstanceUnknown, MoveInProgress
from virtman.migration import held, suspensions
from virtman.migration.suspensions import Tell
from virtman.migration.writing import Content
from virtman.model.address import Portal, Proof
from virtman.node.agent import Agent
from virtman.stack.transport import SourceLayer, transport

LOG = logging.getLogger(__name__)


class Making:
    """Makes layers, and has them no more."""

    def __init__(self, agent: Agent, layers: Layers) -> None:
        self.agent = agent
        self.layers = layers

    def has_data(self, commit: Commit) -> bool:
        """Tell whether there is anything to make the layer of."""
        instances = self.agent.records.inventory().instances
        has_copy = commit.has_copy and commit.copy in instances
        return has_copy or self.layers.file(commit.name).exists()

    def make(self, commit: Commit, tell: Tell) -> None:
        """Write the layer, hash and serve it, and have Volt know it: then it is kept.

        :raises CommitCancelled: if it is not wanted any more
        :raises NoSpace: if it does not fit
        """
        if not self.layers.file(commit.name).exists():
            commit = self._write(commit, tell)
        self.layers.memory(commit.name).unlink(missing_ok=True)  # it is in the layer
        length = self.layers.size(commit.name)
        advance = _counting(tell, "hashing", length)
        hashes = self.layers.tree(commit.name).of(
            str(self.layers.file(commit.name)), length, lambda more, _: advance(more)
        )
        tell("serving", length, length)
        portal, proof = self.serve(commit)
        tell("serving", length, length)  # if Volt is still to know it
        said = self.layers.description(commit.name)
        layer = Layer(said.parent, said.disk_size, said.suspended)
        self.agent.coordinator.keep_layer(commit.name, length, layer, portal, proof, hashes)
        if commit.checkpoint:
            held.hold(self.agent, commit)
        self.layers.advance(replace(commit, phase=Phase.KEPT))
        LOG.info("layer %s of %d bytes is kept", commit.name, length)

    def _write(self, commit: Commit, tell: Tell) -> Commit:
        """Write the layer; return the commit with what it lies on."""
        content = Content(self.agent, self.layers, commit)
        self.layers.advance(content.commit)
        content.write(_counting(tell, "copying", content.total))
        return content.commit

    def serve(self, commit: Commit) -> tuple[Portal, Proof]:
        """Have hosts that know the secret read the layer, and its leaves."""
        (portal, *_), served = self._sources(commit)
        proof = Proof(commit.name, commit.secret)
        for one in served:
            one.up(())
        served[0].require(proof)
        return portal, proof

    def _sources(self, commit: Commit) -> tuple[list[Portal], list[SourceLayer]]:
        host = self.agent.host
        steps = source.steps_of(
            commit.name,
            source.Storage(host.name, host.ip, host.port),
            self.layers.size(commit.name),
            str(self.layers.file(commit.name)),
            self.layers.tree(commit.name).leaves,
        )
        return [step.portal for step in steps], [transport.source(step) for step in steps]

    def finish(self, commit: Commit) -> str:
        """Take away what only the commit needed, and the VM if this was its end.

        :returns: why that stays, if it does
        """
        if not commit.has_copy:
            return ""
        note = self._end(commit) if commit.final else ""
        self.layers.change(commit.name, final=False)
        self._take_copy_away(commit)
        self.layers.change(commit.name, has_copy=False)
        return note

    def _end(self, commit: Commit) -> str:
        """Take the VM away, unless it was used since it was committed; return why not."""
        try:
            with self.agent.claim(commit.vm):
                if self._is_unchanged(commit):
                    self.agent.remove(commit.vm)
                    return ""
        except InstanceUnknown:
            return ""
        except (DeviceBusy, MoveInProgress) as err:
            LOG.info("VM %s: %s", commit.vm, err)
        note = f"VM {commit.vm} was used again after it was committed: it stays"
        LOG.warning("%s", note)
        return note

    def _is_unchanged(self, commit: Commit) -> bool:
        self.agent.records.check_stays(commit.vm)
        inventory = self.agent.records.inventory()
        vm, copy = inventory.instance(commit.vm), inventory.instance(commit.copy)
        (*below, own), (*committed, _) = inventory.chain(vm.store), inventory.chain(copy.store)
        return below == committed and self.agent.stores.layer(own).usage().is_empty

    def undo(self, commit: Commit) -> None:
        """Have nothing of it any more, and the VM go on; it stays if a host reads from it."""
        if commit.qmp:
            suspensions.go_on(commit)
        try:
            self.forget_at_volt(commit)
        except ImageInUse as err:
            LOG.warning("layer %s stays: %s", commit.name, err)
            self.layers.change(commit.name, phase=Phase.KEPT)  # a host was faster
            return
        self.clear_away(commit)

    def forget_at_volt(self, commit: Commit, elsewhere: bool = False) -> None:
        """Have Volt know the layer no more, or a host that has all of it stand for this one.

        :raises ImageInUse: if hosts, VMs or other layers need it
        """
        try:
            self.agent.coordinator.drop_layer(commit.name, elsewhere)
        except ImageUnknown:
            LOG.debug("Volt does not know layer %s", commit.name)

    def clear_away(self, commit: Commit) -> None:
        """Serve the layer no more, and have nothing of it here."""
        if self.layers.file(commit.name).exists():
            for one in self._sources(commit)[1]:
                one.down()
        self._take_copy_away(commit)
        held.let_go(self.agent, commit)
        self.layers.forget(commit)

    def _take_copy_away(self, commit: Commit) -> None:
        if not commit.has_copy:
            return
        try:
            self.agent.destroy(commit.copy)
        except InstanceUnknown:
            LOG.debug("the copy of VM %s is gone", commit.vm)


def _counting(tell: Tell, state: str, total: int) -> Callable[[int], None]:
    """Return what is told of more bytes that are done, and tells how many these are by now."""
    done = 0

    def advance(more: int) -> None:
        nonlocal done
        done += more
        tell(state, done, total)

    tell(state, done, total)
    return advance
