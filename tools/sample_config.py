#!/usr/bin/env python3
"""Writes the sample files in etc/ from the options and the rules, or tells if they are old.

tools/sample_config.py            write them
tools/sample_config.py --check    exit status 1 if one of them is not what would be written
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import entry_points
from oslo_config import cfg, generator
from oslo_policy import generator as policy_generator

ETC = entry_points.TOP / "etc"
Generate = Callable[[Path], None]


def main(arguments: list[str]) -> int:
    """Handle all files that the recipes in etc/ describe."""
    entry_points.provide()
    samples = _samples()
    if "--check" not in arguments:
        for name, generate in samples.items():
            generate(ETC / name)
        return 0
    old = [name for name, generate in samples.items() if _is_old(name, generate)]
    for name in old:
        print(f"etc/{name} is not what the source says: run tools/sample_config.py")
    return 1 if old else 0


def _samples() -> dict[str, Generate]:
    """Return how each sample is written, by its name."""
    samples: dict[str, Generate] = {}
    for recipe in sorted((ETC / "oslo-config-generator").glob("*.conf")):
        samples[recipe.name] = _options(recipe)
    for recipe in sorted((ETC / "oslo-policy-generator").glob("*.conf")):
        samples[recipe.with_suffix(".yaml").name] = _rules(recipe)
    return samples


def _options(recipe: Path) -> Generate:
    def generate(output: Path) -> None:
        generator.main(["--config-file", str(recipe), "--output-file", str(output)])

    return generate


def _rules(recipe: Path) -> Generate:
    def generate(output: Path) -> None:
        arguments = ["--config-file", str(recipe), "--output-file", str(output)]
        policy_generator.generate_sample(arguments, cfg.ConfigOpts())

    return generate


def _is_old(name: str, generate: Generate) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / name
        generate(fresh)
        return not (ETC / name).exists() or fresh.read_text() != (ETC / name).read_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
