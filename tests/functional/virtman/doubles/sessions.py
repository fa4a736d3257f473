"""The double of ``sessions`` in the transport: look-ups without root."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import Session
from virtman.model import naming
from virtman.model.address import Portal
from virtman.model.naming import Device


class Sessions(Double):
    """What a kernel shows of its sessions with parents."""

    def disk(self, iqn: str, lun: int) -> str | None:
        return next(
            (
                one.disks[lun].name
                for one in self.kernel.sessions
                if one.key[2] == iqn and lun in one.disks
            ),
            None,
        )

    def session_of(self, device_number: str) -> Portal | None:
        for one in self.kernel.sessions:
            if any(disk.number == device_number for disk in one.disks.values()):
                return Portal(*one.key)
        return None

    def session_in_use(self, iqn: str) -> bool:
        return any(one.key[2] == iqn and self._holds(one) for one in self.kernel.sessions)

    def is_logged_in(self, iqn: str) -> bool:
        return self.session_to(iqn) is not None and iqn not in self.cut_off()

    def cut_off(self) -> set[str]:
        return {one.key[2] for one in self.kernel.sessions if self.kernel.is_cut_off(one)}

    def session_behind(self, disk: str) -> Portal | None:
        for one in self.kernel.sessions:
            if any(found.name == disk for found in one.disks.values()):
                return Portal(*one.key)
        return None

    def own_ports(self, iqn: str) -> list[int]:
        mine = (one for one in self.kernel.sessions if one.key[2] == iqn)
        return [one.own_port for one in mine if not one.is_cut]

    def paths(self, image: str) -> dict[Device, Portal]:
        devices = {naming.parse(one.name): one.below for one in self.kernel.mappings.values()}
        return {
            device: Portal(*one.key)
            for one in self.kernel.sessions
            for disk in one.disks.values()
            for device, below in devices.items()
            if device is not None and device.image == image and disk.number in below
        }

    def reads(self) -> dict[str, tuple[int, bool]]:
        return {
            disk.name: (0, one.key in self.kernel.network.stuck)
            for one in self.kernel.sessions
            for disk in one.disks.values()
        }

    def unacknowledging(self) -> set[tuple[str, int]]:
        peers = {one.key[:2] for one in self.kernel.sessions if not one.is_cut}
        return self.kernel.network.silent & peers

    def session_to(self, iqn: str) -> Portal | None:
        return next((Portal(*one.key) for one in self.kernel.sessions if one.key[2] == iqn), None)

    def idle_sessions(self) -> list[Portal]:
        return [Portal(*one.key) for one in self.kernel.sessions if not self._holds(one)]

    def _holds(self, session: Session) -> bool:
        """Tell whether anything lies on a disk of the session."""
        held = {number for one in self.kernel.mappings.values() for number in one.below}
        return any(disk.number in held for disk in session.disks.values())
