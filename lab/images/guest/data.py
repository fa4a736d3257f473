"""The data set on the guest's disk: incompressible, and the same bytes in every build."""

import hashlib
import pathlib
import sys

FILES = 11
FILE_BYTES = 4 << 20


def main(folder: pathlib.Path) -> None:
    """Fill `folder` with FILES files of FILE_BYTES pseudo-random bytes, seeded by their names."""
    folder.mkdir(parents=True)
    for number in range(1, FILES + 1):
        name = f"{number:02d}"
        seed = f"virtman guest data {name}".encode()
        (folder / name).write_bytes(hashlib.shake_128(seed).digest(FILE_BYTES))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
