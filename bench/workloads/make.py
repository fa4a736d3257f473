"""The same build by make each time, while nobody thinks: hardly anything varies (vTube, 5.1)."""

from bench.workloads.targets import make

for target in ("library.a", "sample1", "mock.a", "text"):
    make(target)
