"""Holds the data that VMs had at their last checkpoints, so that the next ones have what changed.

What holds them is a hidden snapshot of the VM for each checkpoint; see ``Commit.held``.
"""

from __future__ import annotations

from virtman.disk.layers import Commit, Layers
from virtman.model.chain import Instance, Snapshot
from virtman.node.agent import Agent


def hold(agent: Agent, commit: Commit) -> None:
    """Keep the data of a checkpoint's moment; repeatable, while there is its copy."""
    with agent.stores.suspension.locked(commit.copy) as copy:
        # nobody wrote to the copy itself
        frozen = agent.records.inventory().stores[copy.store].lower
        agent.records.put(
            Snapshot(
                commit.held,
                commit.vm,
                copy.image,
                copy.size,
                frozen,
                commit.created_at,
                copy.origin,
            )
        )


def let_go(agent: Agent, commit: Commit) -> None:
    """Keep the data of a checkpoint's moment no more; repeatable."""
    found = agent.records.inventory().snapshots.get(commit.held)
    if found is not None:
        agent.stores.delete(found)


def latest(agent: Agent, layers: Layers, vm: Instance) -> str:
    """Return the VM's last checkpoint, if what it was of is held; else nothing."""
    snapshots = agent.records.inventory().snapshots
    kept = [one for one in layers.checkpoints(vm.vm) if one.is_kept]
    found = snapshots.get(kept[-1].held) if kept else None
    is_same = found is not None and (found.image, found.origin) == (vm.image, vm.origin)
    return kept[-1].name if is_same else ""
