"""What VMs wrote, by chunk: the file of a store begins with what the store holds."""

from __future__ import annotations

import errno
import itertools
import json
import re
import struct
from pathlib import Path

from tests.functional.virtman.doubles.devices import Devices
from tests.functional.virtman.doubles.model import CHUNK, NUMBER, SECTOR, Row

_LAYER = re.compile("virtman_([^_]+)_origin")


def write(kernel: Devices, name: str, chunk: int, text: str) -> None:
    """Write to a device as a VM does."""
    device = kernel.mapping(name)
    if device.suspended or device.holding:
        raise BlockingIOError(errno.EAGAIN, f"{name} holds its I/O back")
    ((_, length, target, _),) = device.table
    if chunk * CHUNK // SECTOR >= length:
        raise OSError(errno.ENOSPC, f"{name} has no chunk {chunk}")
    if target == "error":
        raise OSError(errno.EIO, f"{name} fails all I/O")
    if target == "linear":
        write(kernel, kernel.named(device.below[0]), chunk, text)
        return
    path, held = exceptions(kernel, device.below[1])
    if target == "snapshot-merge" and chunk not in held:
        write(kernel, kernel.named(device.below[0]), chunk, text)
    else:
        hold(path, {**held, chunk: text})


def read(kernel: Devices, name: str, chunk: int) -> str:
    """Read from a device as a VM does; empty where the image shows."""
    device = kernel.mapping(name)
    if len(device.table) > 1:
        return ""  # the image, or zeros behind it
    ((_, length, target, _),) = device.table
    if target == "error":
        raise OSError(errno.EIO, f"{name} fails all I/O")
    if chunk * CHUNK // SECTOR >= length:
        raise OSError(errno.ENOSPC, f"{name} has no chunk {chunk}")
    if target == "linear":
        return read(kernel, kernel.named(device.below[0]), chunk)
    if not target.startswith("snapshot"):
        return ""
    _, held = exceptions(kernel, device.below[1])
    return held[chunk] if chunk in held else read(kernel, kernel.named(device.below[0]), chunk)


def begin(kernel: Devices, table: list[Row]) -> None:
    """dm-snapshot takes a device that begins with zeros for a new store."""
    used = {number for row in table if row[2] == "snapshot" for number in row[3].split()}
    for volume in kernel.volumes.values():
        if volume.number in used and not any(volume.file.read_bytes()[:4]):
            hold(volume.file, {})


def status(kernel: Devices, row: Row) -> str:
    """Say how full a store is; one that is being merged goes on by a chunk meanwhile."""
    lower, cow = NUMBER.findall(row[3])
    path, held = exceptions(kernel, cow)
    if row[2] == "snapshot-merge" and held:
        chunk = max(held)
        if sum(lower in one.below for one in kernel.mappings.values()) > 1:
            kernel.harm.append(f"merged into {kernel.named(lower)} under others")
        write(kernel, kernel.named(lower), chunk, held.pop(chunk))
        hold(path, held)
    own = 2 * CHUNK // SECTOR  # its header, and the first table of chunks
    taken = own + CHUNK // SECTOR * len(held)
    return f"{taken}/{path.stat().st_size // SECTOR} {own}"


def exceptions(kernel: Devices, cow: str) -> tuple[Path, dict[int, str]]:
    layer = next((_LAYER.fullmatch(one.name) for one in kernel.mappings.values()
                  if one.number == cow), None)  # fmt: skip
    if layer:
        return _of_layer(kernel, layer[1])
    found = [one.file for one in kernel.volumes.values() if one.number == cow]
    found += [Path(one.path) for one in kernel.loops.values() if one.number == cow]
    (path,) = found
    with open(path, "rb") as file:
        text = file.read(16 * 1024).rstrip(b"\0")
    return path, {int(chunk): held for chunk, held in json.loads(text or b"{}").items()}


def _of_layer(kernel: Devices, image: str) -> tuple[Path, dict[int, str]]:
    """Return what the store in a layer holds, as the kernel finds it."""
    path = kernel.network.layer(image)
    assert path is not None
    content = path.read_bytes()
    if struct.unpack_from("<4sIII", content) != (b"SnAp", 1, 1, CHUNK // SECTOR):
        raise OSError(errno.EINVAL, f"{path} is no exception store")
    found: dict[int, str] = {}
    for area in itertools.count(1, CHUNK // 16 + 1):
        for number, place in struct.iter_unpack("<QQ", content[area * CHUNK :][:CHUNK]):
            if not place:
                return path, found
            found[number] = content[place * CHUNK :][:CHUNK].rstrip(b"\0").decode()
    raise AssertionError


def hold(path: Path, held: dict[int, str]) -> None:
    with open(path, "r+b") as file:
        file.write(json.dumps(held).encode().ljust(16 * 1024, b"\0"))
