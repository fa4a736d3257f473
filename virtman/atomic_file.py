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
    # Hidden, as names may end with any suffix, and no two of them may share such a file.
    part = file.with_name(f".{file.name}{_PART}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        part.rename(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync(file.parent)


def remove(file: Path) -> None:
    """Remove a file, for good once this returns; that there is none is fine."""
    file.unlink(missing_ok=True)
    _sync(file.parent)


def final_name(name: str) -> str:
    """Return what a file will be called, which may still be what is being written."""
    return name[1:].removesuffix(_PART) if name.startswith(".") else name


def is_partial(file: Path) -> bool:
    """Tell whether a file is only being written, or was when the power went."""
    return file.name.startswith(".") and file.suffix == _PART


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
