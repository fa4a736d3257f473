"""Makes a raw file or block device the source of an image: served, then known to Volt."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from virtman import naming, plan, privileged
from virtman.access import Access
from virtman.coordinator import Coordinator, Shape
from virtman.errors import InvalidRequest, VirtmanError
from virtman.layers.source import Source
from virtman.naming import Device
from virtman.plan import Chap, Portal

_TIMEOUT = 30.0
_SECRET_BYTES = 16
# On disk, so that a source that is added again after a reboot is the one that Volt knows.
_SECRETS = Path("/var/lib/virtman/sources")


def add(
    image: str,
    path: str,
    host: str,
    ip: str,
    port: int,
    volt: str,
    access: Access,
    shape: Shape,
) -> Portal:
    """Serve ``path`` and register it; repeatable. Nothing is served if Volt refuses.

    Hosts must know a secret, which is made here once and told to Volt.

    :raises InvalidSize: if the file is not a multiple of 512 bytes long
    """
    naming.check("image", image)
    naming.check("host", host)
    size = _size(path)
    step = _step(image, host, size, path, ip, port)
    _become_privileged()
    source = Source(step)
    served = source.is_up()
    source.up(())
    try:
        chap = Chap(image, _secret(image))
        source.require(chap)
        coordinator = Coordinator(volt, host, _TIMEOUT, access)
        coordinator.register(image, size, shape, step.portal, chap)
    except VirtmanError:
        if not served:
            source.down()  # the secret stays: Volt may know it, and the answer was lost
        raise
    return step.portal


def remove(image: str, host: str, volt: str, access: Access) -> None:
    """Make the image unknown to Volt, then stop serving it."""
    naming.check("image", image)
    naming.check("host", host)
    Coordinator(volt, host, _TIMEOUT, access).forget(image)
    _become_privileged()
    Source(_step(image, host, plan.SECTOR, "", "", 0)).down()
    (_SECRETS / image).unlink(missing_ok=True)


def _step(image: str, host: str, size: int, path: str, ip: str, port: int) -> plan.Source:
    portal = Portal(ip, port, naming.iqn(host, image))
    return plan.Source(Device(image, "source"), plan.sectors(size), (), path, portal)


def _secret(image: str) -> str:
    file = _SECRETS / image
    if not file.exists():
        _SECRETS.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = _SECRETS / f".{image}.part"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as new:
            new.write(secrets.token_hex(_SECRET_BYTES))
            new.flush()
            os.fsync(new.fileno())
        part.rename(file)
    return file.read_text()


def _size(path: str) -> int:
    info = os.stat(path)
    if stat.S_ISREG(info.st_mode):
        return info.st_size
    if stat.S_ISBLK(info.st_mode):
        number = f"{os.major(info.st_rdev)}:{os.minor(info.st_rdev)}"
        return int(Path(f"/sys/dev/block/{number}/size").read_text()) * plan.SECTOR
    raise InvalidRequest(f"{path} is neither a file nor a block device")


def _become_privileged() -> None:
    if os.geteuid() != 0:
        raise InvalidRequest("serving an image needs root")
    privileged.start()
