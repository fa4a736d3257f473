"""The double of ``virtman.privileged.dmstats``."""

from __future__ import annotations

from tests.functional.virtman.doubles.devices import Double


class Statistics(Double):
    """Counted reads of devices."""

    def count_reads(self, name: str, area: int, bounds: list[int]) -> None:
        device = self.kernel.mapping(name)
        device.area, device.counts = area, {}

    def counted(self, name: str) -> list[tuple[int, int, int, list[int]]]:
        return [(area, *count) for area, count in self.kernel.mapping(name).counts.items()]

    def count_no_more(self, name: str) -> None:
        if name in self.kernel.mappings:
            self.kernel.mappings[name].area, self.kernel.mappings[name].counts = 0, {}
