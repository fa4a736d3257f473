"""The double of ``virtman.privileged.iscsi``."""

from __future__ import annotations

import errno

from tests.functional.virtman.doubles.devices import Double
from tests.functional.virtman.doubles.model import Disk, Session


class Initiator(Double):
    """Sessions with targets, and what open-iscsi remembers of these."""

    def login(self, ip: str, port: int, target: str, user: str, secret: str) -> None:
        key = (ip, port, target)
        if any(one.key == key for one in self.kernel.sessions):
            raise OSError(errno.EIO, "iscsiadm: status 15: session exists")
        if key not in self.kernel.network.targets:
            raise OSError(errno.EIO, "iscsiadm: status 19: target not found")
        if self.kernel.network.targets[key].chap != (user, secret):
            raise PermissionError(errno.EACCES, f"{target}: wrong user or secret")
        self.kernel.sessions.append(Session(key, {}, (user, secret)))
        self.kernel.remembered.add(key)

    def scan(self, target: str, lun: int) -> None:
        for session in self.kernel.sessions:
            if session.key[2] == target and session.key in self.kernel.network.targets:
                found = self.kernel.network.targets[session.key].luns.get(lun)
                if found is not None and lun not in session.disks:
                    minor = next(self.kernel.minors)
                    disk = Disk(f"sd-{self.kernel.name}-{minor}", f"8:{minor}", found.sectors)
                    session.disks[lun] = disk

    def remember(self, ip: str, port: int, target: str, user: str, secret: str) -> None:
        session = next((one for one in self.kernel.sessions if one.key == (ip, port, target)), None)
        if session is None:
            raise OSError(errno.ENOENT, f"open-iscsi has no record of {target}")
        session.proof = (user, secret)

    def proves(self, target: str, user: str, secret: str) -> bool:
        mine = [one for one in self.kernel.sessions if one.key[2] == target]
        return all(one.proved == (user, secret) for one in mine)

    def records(self) -> list[tuple[str, int, str]]:
        return sorted(self.kernel.remembered)

    def forget(self, ip: str, port: int, target: str) -> None:
        self.kernel.remembered.remove((ip, port, target))

    def logout(self, ip: str, port: int, target: str) -> None:
        for session in self.kernel.sessions:
            if session.key == (ip, port, target):
                lives = not self.kernel.is_cut_off(session)
                if lives and any(self.kernel.is_used(d.number, "") for d in session.disks.values()):
                    self.kernel.harm.append(f"logged out of {target} under a device")
                self.kernel.sessions.remove(session)
                self.kernel.remembered.discard(session.key)
                return
        raise OSError(errno.EIO, "iscsiadm: status 21: no session")

    def bear(self, target: str, seconds: int) -> None:
        for one in self.kernel.sessions:
            if one.key[2] == target:
                one.patience = seconds
