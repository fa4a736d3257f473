"""Compiles the translations when the package is built; all else is in pyproject.toml."""

from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from setuptools import setup
from setuptools.command.build_py import build_py


class Build(build_py):
    """Adds to each catalog the form that Django reads."""

    def run(self):
        """Build, then compile what was built."""
        super().run()
        for source in Path(self.build_lib).rglob("*.po"):
            with source.open("rb") as text, source.with_suffix(".mo").open("wb") as compiled:
                write_mo(compiled, read_po(text))


setup(cmdclass={"build_py": Build})
