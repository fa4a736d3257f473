#!/usr/bin/env python3
"""Writes etc/volt.conf and etc/virtman.conf from the options, or tells if they are old.

tools/sample_config.py            write them
tools/sample_config.py --check    exit status 1 if one of them is not what would be written
"""

import sys
import tempfile
from pathlib import Path

import entry_points
from oslo_config import generator

ETC = entry_points.TOP / "etc"


def main(arguments: list[str]) -> int:
    """Handle all files that etc/oslo-config-generator describes."""
    entry_points.provide()
    names = [recipe.name for recipe in sorted((ETC / "oslo-config-generator").glob("*.conf"))]
    if "--check" not in arguments:
        for name in names:
            _generate(name, ETC / name)
        return 0
    old = [name for name in names if _is_old(name)]
    for name in old:
        print(f"etc/{name} is not what the options say: run tools/sample_config.py")
    return 1 if old else 0


def _generate(name: str, output: Path) -> None:
    recipe = ETC / "oslo-config-generator" / name
    generator.main(["--config-file", str(recipe), "--output-file", str(output)])


def _is_old(name: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / name
        _generate(name, fresh)
        return not (ETC / name).exists() or fresh.read_text() != (ETC / name).read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
