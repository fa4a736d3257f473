"""What this node has seen of an image's parents, and has told Volt."""

from __future__ import annotations

import logging
from collections.abc import Collection, Set

from virtman.coordinator.interface import CORRUPT, Coordinator
from virtman.errors import CoordinatorUnreachable, VirtmanError
from virtman.model.plan import SOURCE, Placement
from virtman.stack.transport import transport

LOG = logging.getLogger(__name__)


class Witness:
    """Tells Volt of each parent, and standby, once: until it is well again, or Volt has heard."""

    def __init__(self, image: str, coordinator: Coordinator) -> None:
        self.image = image
        self.coordinator = coordinator
        # of whom Volt knows that they do not answer
        self._accused: set[str] = set()
        # whose connections were ended because they were silent
        self._given_up: set[str] = set()
        # of whom Volt knows that they sent wrong bytes
        self._convicted: set[str] = set()

    def accuse(self, host: str) -> bool:
        """Tell Volt that a host does not answer; return whether it heard that."""
        if host == SOURCE:  # it has no place that Volt could give to another
            return True
        self._accused.add(host)
        try:
            verdict = self.coordinator.report(self.image, host)
            LOG.warning("image %s: %s does not answer; Volt: %s", self.image, host, verdict)
        except VirtmanError as err:
            LOG.warning("image %s: %s does not answer; %s", self.image, host, err)
            if isinstance(err, CoordinatorUnreachable):
                self._accused.discard(host)
                return False
        return True

    def give_up(self, placement: Placement, silent: Collection[tuple[str, int]]) -> None:
        """Have reads go elsewhere that wait for somebody whose kernel is silent.

        :param silent: addresses and ports
        """
        for host, portal in placement.portals().items():
            if (portal.ip, portal.port) in silent and not transport.is_cut_off(portal):
                LOG.warning("image %s: the kernel of %s is silent", self.image, host)
                self._given_up.add(host)
                transport.abandon(portal)

    def check_answers(self, placement: Placement) -> bool:
        """Tell of those who do not answer; return whether Volt knows all now."""
        told = True
        for host, portal in placement.portals().items():
            if transport.is_cut_off(portal):
                if host not in self._accused:
                    told = self.accuse(host) and told
                continue
            self._accused.discard(host)
            if host in self._given_up:
                transport.bear_with(portal)
                self._given_up.discard(host)
        return told

    def check_bytes(self, wrong: Set[str]) -> None:
        """Tell of those who sent wrong bytes; these paths have failed already."""
        self._convicted &= wrong
        for host in wrong - self._convicted:
            try:
                verdict = self.coordinator.report(self.image, host, CORRUPT)
            except CoordinatorUnreachable as err:  # it shall hear this later
                LOG.warning("image %s: %s sent wrong bytes; %s", self.image, host, err)
                continue
            except VirtmanError as err:
                verdict = str(err)
            self._convicted.add(host)
            LOG.error("image %s: %s sent wrong bytes; Volt: %s", self.image, host, verdict)
