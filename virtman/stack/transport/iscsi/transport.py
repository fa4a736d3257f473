"""What others may ask of iSCSI."""

from __future__ import annotations

import logging

from virtman.model import naming, plan
from virtman.model.address import Portal, iqn, parse_iqn
from virtman.model.naming import MAPPER, PREFIX, Device
from virtman.privileged import iscsi, lio, sockets
from virtman.stack.mapped import explained
from virtman.stack.transport.iscsi import sessions, targets
from virtman.stack.transport.iscsi.export import ExportLayer
from virtman.stack.transport.iscsi.path import PathLayer, log_out
from virtman.stack.transport.iscsi.source import SourceLayer

LOG = logging.getLogger(__name__)

_OURS = f"{MAPPER}{PREFIX}_"


class Iscsi:
    """See ``virtman.stack.transport.Transport``."""

    modules = ("iscsi_tcp", "sd_mod", "target_core_mod", "target_core_file", "iscsi_target_mod")

    def path(self, step: plan.Path) -> PathLayer:
        """Return the layer of a parent's disk."""
        return PathLayer(step)

    def export(self, step: plan.Export) -> ExportLayer:
        """Return the layer of a stripe that is served."""
        return ExportLayer(step)

    def source(self, step: plan.Source) -> SourceLayer:
        """Return the layer of a file or device that is served."""
        return SourceLayer(step)

    def sent(self, portal: Portal) -> int:
        """Return what a target has sent of all its LUNs."""
        return targets.sent(portal.iqn)

    def cut_off(self) -> set[str]:
        """Return the names of targets with sessions that have lost their connection."""
        return sessions.cut_off()

    def unacknowledging(self) -> set[tuple[str, int]]:
        """Return peers to whom TCP sends again."""
        return sessions.unacknowledging()

    def reads(self) -> dict[str, tuple[int, bool]]:
        """Return what SCSI disks have answered."""
        return sessions.reads()

    def behind(self, disk: str) -> Portal | None:
        """Return the portal of the session that a disk belongs to."""
        return sessions.session_behind(disk)

    def is_connected(self, portal: Portal) -> bool:
        """Tell whether there is a session with a target, and logged in."""
        return sessions.is_logged_in(portal.iqn)

    def paths(self, image: str) -> dict[Device, Portal]:
        """Return an image's devices on disks of sessions, and each one's portal."""
        return sessions.paths(image)

    def abandon(self, portal: Portal) -> None:
        """End the connections of sessions with a target, and have no read wait for them."""
        with explained(f"ending connections to {portal.iqn} at {portal.ip}"):
            iscsi.bear(portal.iqn, 0)
            for own in sessions.own_ports(portal.iqn):
                sockets.end("iscsid", portal.ip, portal.port, own)

    def bear_with(self, portal: Portal) -> None:
        """Have reads wait for the sessions with a target as they do from the start."""
        with explained(f"sessions with {portal.iqn}"):
            iscsi.bear(portal.iqn, iscsi.PATIENCE)

    def idle(self) -> list[Portal]:
        """Return the sessions with targets of ours on whose disks nothing lies."""
        return [one for one in sessions.idle_sessions() if parse_iqn(one.iqn)]

    def log_out(self, portal: Portal) -> None:
        """End a session, and forget its target."""
        log_out(portal)

    def exports(self) -> dict[str, str]:
        """Return the image of each storage object over an export's device, by its name."""
        found = {}
        for name, path in targets.storages().items():
            device = naming.parse(path.removeprefix(MAPPER)) if path.startswith(_OURS) else None
            if device is not None and device.role.startswith("export"):
                found[name] = device.image
        return found

    def withdraw(self, name: str, host: str, image: str) -> None:
        """Stop serving a storage object, named ``virtman_<image>_<lun>``."""
        with explained(f"withdrawing {name}"):
            lio.withdraw(name, iqn(host, image), int(name.rpartition("_")[2]))

    def prepare(self) -> None:
        """Have LIO ready, and forget targets without a session.

        Sessions end with the power, their records do not. A login writes its record first.
        """
        try:
            lio.prepare()
        except OSError as err:
            LOG.warning("nothing can be served yet: %s", err)
        try:
            for ip, port, target in iscsi.records():
                if parse_iqn(target) is not None and sessions.session_to(target) is None:
                    iscsi.forget(ip, port, target)
        except OSError as err:
            LOG.warning("what open-iscsi remembers of parents: %s", err)
