"""What becomes of reads: of VMs, and ahead of them."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Devices
from tests.functional.virtman.doubles.model import SECTOR, Mapping

PAGE = 4096
HEADER = REGION = 1024 * 1024
_WAIT = 50_000_000  # nanoseconds for a read that memory does not answer


def pages(offset: int, length: int) -> range:
    return range(offset // PAGE, -(-(offset + length) // PAGE))


def fetch(kernel: Devices, export: Mapping, offset: int, length: int) -> bool:
    """Have a page cache hold bytes of an export; tell whether it lacked any."""
    lacking = set(pages(offset, length)) - export.pages
    export.pages |= lacking
    if not kernel.cache_answers:
        image = export.name.split("_")[1]
        kernel.mapping(f"virtman_{image}_stripe").sectors_read += len(lacking) * PAGE // SECTOR
    return bool(lacking)


def read(kernel: Devices, image: str, offset: int, length: int, ahead: int = 0) -> None:
    """Read from an image as a VM does, within a piece; the kernel reads some bytes ahead."""
    export = kernel.mapping(f"virtman_{image}_export{offset // REGION % 2}")
    waited = fetch(kernel, export, HEADER + offset, length)
    fetch(kernel, export, HEADER + offset + length, ahead)
    origin = kernel.mapping(f"virtman_{image}_origin")
    origin.sectors_read += length // SECTOR
    if origin.area:
        area = offset // origin.area
        sectors, spent, classes = origin.counts.get(area, (0, 0, [0] * 5))
        spent += _WAIT if waited else 0
        classes[2 if waited else 0] += 1
        origin.counts[area] = (sectors + length // SECTOR, spent, classes)
