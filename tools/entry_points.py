"""Makes the entry points of setup.cfg known where the packages are not installed.

The tools of oslo.config find options by entry points, which Python looks for in the
metadata of installed packages. So a folder with just that metadata is written and put on
the path.
"""

import configparser
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
FOLDER = TOP / "build" / "entry_points"


def provide() -> None:
    """Write the metadata, if it changed, and let this process see it."""
    setup = configparser.ConfigParser()
    setup.read(TOP / "setup.cfg")
    groups = [f"[{name}]{lines}\n" for name, lines in setup["entry_points"].items()]
    metadata = FOLDER / "virtman-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    _write(metadata / "METADATA", "Metadata-Version: 2.1\nName: virtman\nVersion: 0\n")
    _write(metadata / "entry_points.txt", "".join(groups))
    sys.path[:0] = [str(TOP), str(FOLDER)]


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
