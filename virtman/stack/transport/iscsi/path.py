"""A parent's disk: an iSCSI session, and the image's part of its LUN."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Sequence

from virtman import sysfs
from virtman.errors import ImageMismatch, KernelFailure, ParentUnreachable
from virtman.model import plan
from virtman.model.address import Portal, Proof
from virtman.model.sizes import BLOCK, SECTOR
from virtman.privileged import block, iscsi
from virtman.stack.layer import wait_until
from virtman.stack.mapped import Mapped, Table, explained
from virtman.stack.transport.iscsi import sessions

LOG = logging.getLogger(__name__)

_CONNECT_DEADLINE = 3.0
_BACK_DEADLINE = 0.5
_DISK_DEADLINE = 15.0
_LATE_DEADLINE = 2.0
_REFUSED_DEADLINE = 5.0
_REFUSED_PAUSE = 0.1


class PathLayer:
    """One iSCSI session and a linear device over the image's part of its disk."""

    def __init__(self, step: plan.Path) -> None:
        self.step = step
        self.mapped = Mapped(str(step.device))

    def up(self, below: Sequence[str]) -> str:
        """Log in, wait for the disk, and show the image on it.

        :raises ParentUnreachable: if the portal does not answer, refuses, or has no such disk; also
            if the session is cut off: a device that is there is good then, but for no read now
        :raises ImageMismatch: if the disk is too small to be the image
        """
        portal = self.step.portal
        if portal is None:
            raise KernelFailure(f"path {self.step.device}: nobody said where the parent is")
        disk = self._disk(portal)
        self._must_be_connected(portal)
        start, length = portal.offset // SECTOR, self.step.sectors
        have = min(sysfs.sectors(disk) - start, length)
        if have <= length - BLOCK // SECTOR:
            raise ImageMismatch(
                f"{portal.iqn} at {portal.ip} serves {max(have, 0) * SECTOR} bytes of image "
                f"{self.step.device.image}, which is longer"
            )
        table = [(0, have, "linear", f"{sysfs.disk_number(disk)} {start}")]
        if have < length:
            table.append((have, length - have, "zero", ""))
        with explained(f"disk {disk}"):
            # Linux 6.1 warns when a read-ahead that a cache could not answer comes here, and is
            # made one with a plain read: multipaths have marked the two in different ways
            block.merge_nothing(disk)
        try:
            self.mapped.set_up(table)
        except KernelFailure:
            self._must_be_connected(portal)  # a parent may have gone meanwhile
            raise
        return self.mapped.node

    def release(self) -> None:
        """Nothing waits here: iSCSI fails a lost session's I/O by itself."""

    def down(self) -> None:
        """Remove the device, and log out of its session unless another stripe uses it."""
        session = self._session()
        self.mapped.down()
        if session is not None and not sessions.session_in_use(session.iqn):
            log_out(session)

    def is_up(self) -> bool:
        """Tell whether the device lies on a disk that is there."""
        table = self.mapped.table()
        return bool(table) and _session_below(table) is not None

    def is_seen(self, status: Table) -> bool:
        """Tell the same by the device's status, as far as the parent is known."""
        portal = self.step.portal
        return bool(status) and portal is not None and sessions.session_to(portal.iqn) is not None

    def _disk(self, portal: Portal) -> str:
        """Return the disk of the session with the parent, which may be opened now.

        One that has lost its connection is left to open-iscsi, which opens it again once the
        parent lets it in: one that is stuck does so when it has answered all reads. A session of
        ours beside it would be let in at once, and reads would wait there again.
        """
        disk = sessions.disk(portal.iqn, portal.lun)
        if disk is not None and portal.iqn in sessions.cut_off() and _answers(portal):
            with explained(f"what is proved to {portal.iqn}"):
                is_known = iscsi.proves(portal.iqn, *_words(self.step.proof))
            if not is_known:  # open-iscsi would try for ever with the secret of the first login
                log_out(portal)
                disk = None
        if disk is None:
            return self._log_in(portal)
        user, secret = _words(self.step.proof)
        with explained(f"what to prove to {portal.iqn}"):
            iscsi.remember(portal.ip, portal.port, portal.iqn, user, secret)
        return disk

    def _must_be_connected(self, portal: Portal) -> None:
        """Raise ParentUnreachable otherwise: Linux opens no disk then for a new device."""
        if portal.iqn in sessions.cut_off():
            raise ParentUnreachable(
                f"{self._what(portal)} has lost its connection; it is used again once it lets this "
                "node in, which one does not whose disks give no answer",
                self.step.device.argument,
            )

    def _log_in(self, portal: Portal) -> str:
        host, what = self.step.device.argument, self._what(portal)
        try:
            _connect(portal)
        except OSError as err:
            raise ParentUnreachable(
                f"{what} does not answer on port {portal.port} ({err}); check that it runs "
                "and that this node reaches it",
                host,
            ) from err
        # with other disks, or an agent died here
        is_open = sessions.session_to(portal.iqn) is not None
        try:
            if not is_open:
                self._prove(portal)
            iscsi.scan(portal.iqn, portal.lun)
        except OSError as err:
            if isinstance(err, PermissionError):
                reason = "it refused the login"
            else:
                reason = "the kernel did not look for its disk" if is_open else "the login failed"
            raise ParentUnreachable(f"{what}: {reason}: {err.strerror}", host) from err
        try:
            wait_until(
                lambda: sessions.disk(portal.iqn, portal.lun) is not None,
                _LATE_DEADLINE if is_open else _DISK_DEADLINE,
                f"{what}: LUN {portal.lun} of {portal.iqn}",
            )
        except KernelFailure as err:
            if not sessions.session_in_use(portal.iqn):
                log_out(portal)
            raise ParentUnreachable(f"{err}; check that its disk answers", host) from err
        disk = sessions.disk(portal.iqn, portal.lun)
        assert disk is not None
        LOG.info("connected to %s (%s) as %s", host, portal.iqn, disk)
        return disk

    def _prove(self, portal: Portal) -> None:
        """Log in, again for a while if refused: the parent may hear the secret after us."""
        end = time.monotonic() + _REFUSED_DEADLINE
        while True:
            try:
                iscsi.login(portal.ip, portal.port, portal.iqn, *_words(self.step.proof))
                return
            except PermissionError as err:
                if time.monotonic() > end:
                    raise
                LOG.debug("%s: %s; trying again", portal.iqn, err.strerror)
            time.sleep(_REFUSED_PAUSE)

    def _session(self) -> Portal | None:
        """Find the session of the disk below: the kernel knows it better than the plan."""
        session = _session_below(self.mapped.table())
        if session is None and self.step.portal is not None:
            return sessions.session_to(self.step.portal.iqn)
        return session

    def _what(self, portal: Portal) -> str:
        return f"image {self.step.device.image}: {self.step.device.argument} at {portal.ip}"


def log_out(portal: Portal) -> None:
    """End a session, and forget its target."""
    with explained(f"logging out of {portal.iqn}"):
        iscsi.logout(portal.ip, portal.port, portal.iqn)


def _session_below(table: Table) -> Portal | None:
    return sessions.session_of(table[0][3].split()[0]) if table else None


def _words(proof: Proof | None) -> tuple[str, str]:
    return (proof.user, proof.secret) if proof else ("", "")


def _answers(portal: Portal) -> bool:
    """Tell whether a parent that was cut off is back; others wait, so not for long."""
    with contextlib.suppress(OSError):
        _connect(portal, _BACK_DEADLINE)
        return True
    return False


def _connect(portal: Portal, deadline: float = _CONNECT_DEADLINE) -> None:
    socket.create_connection((portal.ip, portal.port), deadline).close()
