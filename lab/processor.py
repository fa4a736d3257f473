"""What User Mode Linux lacks to run on this machine's processor."""

import subprocess
import tempfile
from pathlib import Path

from lab.errors import BuildFailed
from lab.rootfs import TOP, cache_folder, recipe_key

SOURCE = TOP / "lab/images/kernel/xstate.c"


def environment() -> dict[str, str]:
    """Return variables that a node's kernel must be started with.

    With AMX, a process has more registers than UML has room for: see the source.
    """
    if "amx_tile" not in Path("/proc/cpuinfo").read_text():
        return {}
    library = cache_folder() / f"xstate-{recipe_key({SOURCE.name: SOURCE.read_bytes()})}.so"
    if not library.exists():
        _build(library)
    return {"LD_PRELOAD": str(library)}


def _build(library: Path) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        part = Path(folder) / library.name
        command: list[str | Path] = ["cc", "-O2", "-shared", "-fPIC", "-o", part, SOURCE]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as err:
            raise BuildFailed("this processor has AMX: install gcc and libc6-dev") from err
        except subprocess.CalledProcessError as err:
            raise BuildFailed(f"{SOURCE}: {err.stderr}") from err
        part.rename(library)
