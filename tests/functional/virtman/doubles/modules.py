"""The double of ``virtman.privileged.kernel``."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Double


class Modules(Double):
    """Which modules the kernel has."""

    def load_modules(self, names: list[str]) -> list[str]:
        return [name for name in names if name in self.kernel.missing_modules]

    def fetch_hashes(self, size: int) -> None:
        self.kernel.hashes_fetched = size
