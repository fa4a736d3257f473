"""What can be done to a node: power cut, restart, freeze, unplugged cable."""

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from lab.errors import NodeLost
from lab.network import Network
from lab.processes import Process
from lab.state import NodeRecord, State

if TYPE_CHECKING:
    from lab.node import Node


class Faults:
    """The faults of a node, each with what ends it."""

    name: str
    _state: State
    _network: Network

    def kill(self: "Node") -> None:
        """Cut the power: nothing is written back. No error if it is off already."""
        process = self.record().process
        if process is not None:
            process.end(self._network.inode())
            self._state.change(lambda bed: bed.with_node(_off(bed.node(self.name), process)))

    def restart(self: "Node", deadline: float = 120) -> None:
        """Cut the power and start again with the same disks; wait until it answers."""
        self.kill()
        self.boot()
        self.wait_up(deadline)

    def pause(self: "Node") -> None:
        """Freeze the node: it keeps its connections and answers nothing."""
        _signal(self, signal.SIGSTOP)

    def resume(self: "Node") -> None:
        """End a pause."""
        _signal(self, signal.SIGCONT)

    def cut(self: "Node") -> None:
        """Unplug the node's cable on the far side: packets vanish both ways."""
        self._network.set_link(self.record().index, "down")

    def heal(self: "Node") -> None:
        """Plug the cable in again."""
        self._network.set_link(self.record().index, "up")


def _off(record: NodeRecord, ended: Process) -> NodeRecord:
    """Return the record without the process, unless another one was started meanwhile."""
    return replace(record, process=None) if record.process == ended else record


def _signal(node: "Node", how: signal.Signals) -> None:
    """Signal the node's kernel alone.

    The other members of its group are its stopped or traced children: a stop
    of their own would reach the kernel as an unexpected signal of a process.
    """
    process = node.record().process
    if process is None or not process.alive():
        raise NodeLost(f"{node.name} is gone\n{node.console_tail()}")
    os.kill(process.pid, how)
