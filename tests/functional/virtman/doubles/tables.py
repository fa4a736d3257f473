"""Which tables the device mapper takes, and how it shows them."""

from __future__ import annotations

import errno
import re

from tests.functional.virtman.doubles.devices import Devices
from tests.functional.virtman.doubles.model import NUMBER, SSD_NUMBER, Mapping, Row

# Which of the devices in a target's parameters must be as long as the target; else all.
_ORIGIN = {
    "snapshot": (0, 0),
    "snapshot-merge": (0, 0),
    "cache": (2, 3),
    "flashcache": (0, 1),
    "verity": (0, 1),
}


def check(kernel: Devices, table: list[Row], read_only: bool, own: str = "") -> None:
    """Refuse what the kernel refuses; ``own`` is the number of the device that gets the table."""
    sizes, write_protected = kernel.sizes(), kernel.write_protected()
    end = 0
    for start, length, target, parameters in table:
        words = parameters.split()
        numbers = NUMBER.findall(parameters)
        if start != end or length <= 0:
            raise OSError(errno.EINVAL, "a table without gaps was expected")
        end = start + length
        if own in numbers:
            raise OSError(errno.ELOOP, "a device cannot lie on itself")
        if not sizes.keys() >= set(numbers):
            raise OSError(errno.ENXIO, f"{target}: there is none of {numbers}")
        if _is_cut_off(kernel, numbers, own):
            raise OSError(errno.ENXIO, f"{target}: a disk of {numbers} cannot be opened")
        offset = int(words[1]) if target == "linear" else 0
        first, last = _ORIGIN.get(target, (0, None))
        if any(sizes[n] < offset + length for n in numbers[first:last]):
            raise OSError(errno.EINVAL, f"{target}: too small")
        written = numbers[1:] if target == "snapshot" else numbers
        if not read_only and write_protected & set(written):
            raise OSError(errno.EACCES, f"{target}: read-only")
        if target == "verity":
            _check_verity(read_only, sizes[numbers[1]], int(words[5]))
        _check_target(kernel, target, numbers, own)
        if SSD_NUMBER in kernel.under(numbers) and target == "linear":
            _check_extent(kernel, own, numbers, offset, length)


def _is_cut_off(kernel: Devices, numbers: list[str], own: str) -> bool:
    """Tell whether a disk is to be opened whose session is; one that is open already stays so."""
    opened = set(numbers) - kernel.under([own])
    return any(
        kernel.is_cut_off(session)
        for session in kernel.sessions
        if any(disk.number in opened for disk in session.disks.values())
    )


def check_led(kernel: Devices, device: Mapping, table: list[Row], flush: bool) -> None:
    """See to it that a store may be put on another one than it lies on."""
    if not device.table[0][2].startswith("snapshot"):
        return
    before, after = (NUMBER.findall(rows[0][3])[0] for rows in (device.table, table))
    if before == after:
        return
    if not (flush or device.suspended):
        kernel.harm.append(f"{device.name}: what was written meanwhile is lost")
    for one in kernel.mappings.values():
        if (
            one.table[0][2] == "snapshot-merge"
            and one.below[0] == after
            and any(
                other.hung and not other.suspended and one.number in kernel.all_below(other.number)
                for other in kernel.mappings.values()
            )
        ):
            kernel.harm.append(f"{device.name}: waits until nothing goes through {one.name}")


def _check_target(kernel: Devices, target: str, numbers: list[str], own: str) -> None:
    if target.startswith("snapshot") and _is_cow_elsewhere(kernel, numbers[1], own):
        raise OSError(errno.EINVAL, f"{target}: the store is another device's")
    if target == "cache":
        _check_metadata(kernel, numbers)


def _check_verity(read_only: bool, hash_sectors: int, blocks: int) -> None:
    """Refuse what dm-verity refuses, such as a hash device shorter than the tree."""
    if not read_only:
        raise OSError(errno.EINVAL, "verity: read-only, or not at all")
    total = 0
    while blocks > 1:
        blocks = -(-blocks // 128)
        total += blocks
    if hash_sectors < total * 8:
        raise OSError(errno.E2BIG, "verity: the hash device is too small")


def _check_metadata(kernel: Devices, numbers: list[str]) -> None:
    """dm-cache takes metadata that it finds for those of what lies below now."""
    (meta,) = (one for one in kernel.mappings.values() if one.number == numbers[0])
    if not meta.wiped:
        kernel.harm.append(f"{meta.name} was used with what it held")
    meta.wiped = False


def _check_extent(kernel: Devices, own: str, numbers: list[str], offset: int, length: int) -> None:
    for one in kernel.mappings.values():
        for _, size, _, words in one.table if one.number != own else []:
            number, _, start = words.partition(" ")
            if number in numbers and int(start) < offset + length and offset < int(start) + size:
                kernel.harm.append(f"an extent of {one.name} was given to another")


def _is_cow_elsewhere(kernel: Devices, cow: str, own: str) -> bool:
    return any(
        row[2].startswith("snapshot") and NUMBER.findall(row[3])[1] == cow
        for one in kernel.mappings.values()
        if one.number != own
        for row in one.table
    )


def reworded(row: Row) -> Row:
    """Return a row as the kernel prints it."""
    if row[2] != "multipath":
        return row
    words = row[3].replace(
        "3 queue_if_no_path queue_mode bio",
        "4 queue_if_no_path retain_attached_hw_handler queue_mode bio",
    )
    words = re.sub("^2 queue_mode bio", "3 retain_attached_hw_handler queue_mode bio", words)
    return (*row[:3], re.sub(r"service-time 0 1 1 (\S+) 1", r"service-time 0 1 2 \1 1 1", words))


def with_queueing(row: Row, on: bool) -> Row:
    if row[2] != "multipath":
        return row
    plain = row[3].replace("4 queue_if_no_path ", "3 ")
    return (*row[:3], plain.replace("3 ", "4 queue_if_no_path ", 1) if on else plain)
