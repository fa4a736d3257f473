#!/usr/bin/env python3
"""Writes what the driver has to know of a nova, when that nova's Python runs it.

tools/nova_release.py VERSION FOLDER

The sources of the methods that the driver overrides or calls go to FOLDER, a file each. Their
digests go to the release's file in virtman/openstack/releases. One that is not there yet begins as
that of the newest release. tools/nova_release.sh is the command for all of it.
"""

import re
import sys
from pathlib import Path

from virtman.openstack import driver, guard, releases

FILES = Path(releases.__file__).parent


def main(version: str, folder: Path) -> None:
    """Write all of it."""
    methods = driver.methods()
    folder.mkdir(parents=True)
    for name in methods:
        (folder / f"{name}.py").write_text(guard.source(methods[name]))
    file = _file(version)
    newest = list(releases.RELEASES)[-1]
    text = (file if file.exists() else _file(newest)).read_text()
    text = re.sub(r"\d+\.\d+\.\d+", version, text)
    digests = "".join(f'    "{name}": "{one}",\n' for name, one in guard.digests(methods).items())
    text = re.sub(r"(METHODS = \{\n).*?(?=\})", rf"\1{digests}", text, flags=re.DOTALL)
    file.write_text(text)


def _file(version: str) -> Path:
    return FILES / f"nova{version.partition('.')[0]}.py"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
