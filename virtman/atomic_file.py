"""Files that are there as a whole, or as they were before, whenever the power goes.

What is written goes to a file beside, which takes the place of the old one once all of it is on the
disk. A rename is on the disk only once the folder is, so that is synced too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_PART = ".part"


def prepare(folder: Path) -> None:
    """Make a folder for such files, its owner's only; what writers that died left there goes.

    Nobody may be writing in it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in folder.iterdir():
        if is_partial(file):
            file.unlink()


def write(file: Path, content: bytes) -> None:
    """Put this in place of a file, for good once this returns."""
    with replacing(file) as new:
        new.write(content)


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """Open what takes the place of a file at the end; only its owner can read it.

    If what is done meanwhile fails, the old one stays.
    """
    with making(file) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as opened:
            yield opened


@contextmanager
def making(file: Path) -> Iterator[Path]:
    """Name what takes the place of a file at the end, for what is written by name.

    There is none of that name at first. If what is done meanwhile fails, the old file stays.
    """
    part = part_of(file)
    # Never written to as it is: it may have another name, or a writer that outlived its parent.
    part.unlink(missing_ok=True)
    try:
        yield part
        put(part, file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def put(part: Path, file: Path) -> None:
    """Have what was written take the place of a file, for good once this returns."""
    _sync(part)
    part.rename(file)
    _sync(file.parent)


def remove(file: Path) -> None:
    """Remove a file, for good once this returns; that there is none is fine."""
    file.unlink(missing_ok=True)
    _sync(file.parent)


def part_of(file: Path) -> Path:
    """Return what a file is called while it is being written."""
    # Hidden, as names may end with any suffix, and no two of them may share such a file.
    return file.with_name(f".{file.name}{_PART}")


def final_name(name: str) -> str:
    """Return what a file will be called, which may still be what is being written."""
    return name[1:].removesuffix(_PART) if name.startswith(".") else name


def is_partial(file: Path) -> bool:
    """Tell whether a file is only being written, or was when the power went."""
    return file.name.startswith(".") and file.suffix == _PART


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk, whoever wrote to it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
