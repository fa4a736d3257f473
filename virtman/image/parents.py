"""What this node has seen of an image's parents, and has told Volt."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor

from virtman.coordinator.interface import CORRUPT, Coordinator
from virtman.errors import CoordinatorUnreachable, VirtmanError
from virtman.model import feeding
from virtman.model.address import Portal
from virtman.model.naming import Device
from virtman.model.placement import SOURCE, Placement
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

    def give_up(
        self,
        placement: Placement,
        silent: Set[tuple[str, int]],
        stuck: Set[str],
        *,
        lends: bool,
    ) -> None:
        """Have reads go elsewhere that wait for somebody who does not answer.

        It may be a parent of an earlier placement: reads go there until the present one is in use.
        Who is merely stuck is given up only if all that it feeds can be read from another one: it
        may wait for its own parents, and then nobody else may have what is read either. One with a
        session will do: its devices may wait for the very reads that are stuck. But what others
        read of an image that lends they have parents of their own for.

        :param silent: addresses and ports of those whose kernels are silent
        :param stuck: names of what answers no reads
        :param lends: whether others read from the image
        """
        paths = transport.paths(self.image)
        known = {**feeding.paths(placement), **paths}
        for host, portal in _portals(placement, paths).items():
            feeds = [device.role for device in paths if device.argument == host]
            if (portal.ip, portal.port) in silent:
                fault = f"the kernel of {host} is silent"
            elif portal.name in stuck and (lends or _is_spare(known, feeds, host, stuck)):
                fault = f"{host} answers no reads"
            else:
                continue
            if portal.name not in transport.cut_off():
                LOG.warning("image %s: %s", self.image, fault)
                self._given_up.add(host)
                transport.abandon(portal)

    def has_back(self, placement: Placement, cut_off: Set[str]) -> bool:
        """Tell whether somebody who was given up is there again, so that reads may go there.

        :param cut_off: names of those who have lost the connection
        """
        return bool(self._given_up) and any(
            host in self._given_up and portal.name not in cut_off
            for host, portal in _portals(placement, transport.paths(self.image)).items()
        )

    def check_answers(self, placement: Placement, cut_off: Set[str]) -> bool:
        """Tell of those who do not answer; return whether Volt knows all now.

        :param cut_off: names of those who have lost the connection
        """
        away = set()
        portals = placement.portals()
        if self._given_up:  # some may be parents of before; else no disk has to be looked at
            portals = _portals(placement, transport.paths(self.image))
        for host, portal in portals.items():
            if portal.name in cut_off:
                away.add(host)
            elif host in self._given_up:
                transport.bear_with(portal)
                self._given_up.discard(host)
        away &= placement.portals().keys()  # Volt hears of nobody else
        self._accused &= away
        fresh = away - self._accused
        if not fresh:
            return True
        # at once: Volt tries each, and a host that has lost two waits for another place
        with ThreadPoolExecutor(len(fresh)) as pool:
            return all(list(pool.map(self.accuse, fresh)))

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


def _portals(placement: Placement, paths: Mapping[Device, Portal]) -> Mapping[str, Portal]:
    """Return where each host serves from whom this one reads, or is about to; by name."""
    there = {device.argument: portal for device, portal in paths.items()}
    return {**placement.portals(), **there}


def _is_spare(
    paths: Mapping[Device, Portal], feeds: Sequence[str], host: str, stuck: Set[str]
) -> bool:
    """Tell whether all that a host feeds, by the roles of its paths, can be read from another."""
    return all(
        any(
            other.role == role and other.argument != host and _is_well(portal, stuck)
            for other, portal in paths.items()
        )
        for role in feeds
    )


def _is_well(portal: Portal, stuck: Set[str]) -> bool:
    return portal.name not in stuck and transport.is_connected(portal)
