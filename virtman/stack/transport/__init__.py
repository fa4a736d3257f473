"""How blocks come from other hosts and go to them: what others may ask for, and who does it.

One package does it, which nobody imports but this file; a second transport is a second package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from virtman.model import plan
from virtman.model.address import Portal, Proof
from virtman.model.naming import Device
from virtman.stack.layer import Layer
from virtman.stack.transport.iscsi.transport import Iscsi


class SourceLayer(Layer, Protocol):
    """A file or block device, served as it is."""

    def require(self, proof: Proof) -> None:
        """Let those log in who know this; until it is called first, none can."""


class ExportLayer(SourceLayer, Protocol):
    """One stripe of an image, served."""

    def children(self) -> list[str]:
        """Return who is logged in, for any stripe of the image."""


class Transport(Protocol):
    """The kernel is asked each time; nothing is remembered."""

    @property
    def modules(self) -> Sequence[str]:
        """Kernel modules that it needs."""

    # layers, and what is served

    def path(self, step: plan.Path) -> Layer:
        """Return what makes a parent's disk a device of this node."""

    def export(self, step: plan.Export) -> ExportLayer:
        """Return what serves a stripe to children."""

    def source(self, step: plan.Source) -> SourceLayer:
        """Return what serves the root of an image's trees."""

    def sent(self, portal: Portal) -> int:
        """Return how many bytes this node has sent to whom it serves there."""

    # parents

    def cut_off(self) -> set[str]:
        """Return the names of parents a session with whom has lost its connection."""

    def unacknowledging(self) -> set[tuple[str, int]]:
        """Return address and port of peers to whom something is sent again, in vain so far.

        A peer that is merely busy acknowledges what it gets at once.
        """

    def reads(self) -> Mapping[str, tuple[int, bool]]:
        """Return of each disk how many reads it has answered, and whether it owes more.

        Disks of this node's own may be among them.
        """

    def behind(self, disk: str) -> Portal | None:
        """Return where a disk is served; None if it is no parent's."""

    def is_connected(self, portal: Portal) -> bool:
        """Tell whether there is a session with a parent that has its connection."""

    def paths(self, image: str) -> Mapping[Device, Portal]:
        """Return the paths that an image has here, whoever placed it so, and where each is served.

        The argument of a path's name is the host, and its role is where it belongs.
        """

    def abandon(self, portal: Portal) -> None:
        """End the connections to a parent: reads then fail at once, and others can be tried.

        Those of other images to the same host go on: it may serve these well.
        """

    def bear_with(self, portal: Portal) -> None:
        """Let a parent lose its connection for a moment again without failing reads."""

    def prepare(self) -> None:
        """Have ready what the first image would wait for, and forget what an earlier boot left.

        That is the parents, and what was to be proved to them. To be called while nothing logs in.
        What cannot be done is logged, and told to whom needs it.
        """

    # what an agent left that died

    def idle(self) -> list[Portal]:
        """Return where hosts of ours serve with whom there are sessions that nothing lies on."""

    def log_out(self, portal: Portal) -> None:
        """End a session."""

    def exports(self) -> Mapping[str, str]:
        """Return the image of each thing that this node serves, by the thing's name."""

    def withdraw(self, name: str, host: str, image: str) -> None:
        """Stop serving a thing, by its name."""


transport: Transport = Iscsi()
