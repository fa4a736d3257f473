"""What images consist of that benches make: bytes that nothing can make fewer, always the same."""

import random
from pathlib import Path

_PIECE = 1024 * 1024  # a generator gives less than 256 MiB at once


def write_random(file: Path, size: int) -> None:
    """Fill a file with so many random bytes."""
    dice = random.Random(1)  # noqa: S311  # no secret
    with open(file, "wb") as into:
        for start in range(0, size, _PIECE):
            into.write(dice.randbytes(min(_PIECE, size - start)))
