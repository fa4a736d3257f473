"""The disk image that every guest of the test bed boots."""

import subprocess
from pathlib import Path

BUILD = Path(__file__).parent / "guest" / "build"


def guest_image() -> Path:
    """Return the raw disk of the current recipe, built first if the cache lacks it.

    `guest.json` beside it holds its size in bytes and its SHA-256.  Whoever
    boots it does so from a copy or through a snapshot: the file is shared.
    """
    built = subprocess.run([BUILD], stdout=subprocess.PIPE, text=True, check=True)
    return Path(built.stdout.strip())
