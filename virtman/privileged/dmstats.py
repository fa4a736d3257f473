"""Reads of device-mapper devices, counted by the kernel (dm-statistics)."""

from __future__ import annotations

import errno

from virtman.privileged import context
from virtman.privileged.libdm import ask

_SECTOR = 512
_COUNTER = "virtman"
"""By which counters of ours are told from those of others."""


@context.entrypoint
def count_reads(name: str, area: int, bounds: list[int]) -> None:
    """Begin to count a device's reads by areas, from nothing.

    :param area: bytes of one; the kernel takes some 100 bytes a processor for each
    :param bounds: nanoseconds, ascending, between which reads are counted by how long they took
    """
    _count_no_more(name)
    classes = f"histogram:{','.join(map(str, bounds))}"
    ask(name, f"@stats_create - {area // _SECTOR} 2 precise_timestamps {classes} {_COUNTER}")


@context.entrypoint
def counted(name: str) -> list[tuple[int, int, int, list[int]]]:
    """Return what was read of each area of which something was: reads that are counted.

    :returns: number of the area, sectors that were read, nanoseconds that all reads took, and how
        many reads took up to each of the bounds, and longer; nothing if none are counted
    """
    found = []
    for region in _counters(name):
        for number, line in enumerate(ask(name, f"@stats_print {region}").splitlines()):
            words = line.split()
            if int(words[1]):
                classes = [int(count) for count in words[-1].split(":")]
                found.append((number, int(words[3]), int(words[4]), classes))
    return found


@context.entrypoint
def count_no_more(name: str) -> None:
    """Count a device's reads no longer; a device that is not there, or not counted, is fine."""
    try:
        _count_no_more(name)
    except OSError as err:
        if err.errno != errno.ENXIO:
            raise


def _count_no_more(name: str) -> None:
    for region in _counters(name):
        ask(name, f"@stats_delete {region}")


def _counters(name: str) -> list[str]:
    listed = ask(name, f"@stats_list {_COUNTER}").splitlines()
    return [line.split(":")[0] for line in listed]
