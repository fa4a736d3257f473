"""Builds of a C++ library by make: the library always, and of what uses it, or others, some."""

from bench.workloads.targets import PROGRAMS, make
from bench.workloads.visitor import dice, think

OTHERS = ("mock.a", "sample1", "sample2", "sample4", "archive", *PROGRAMS)

for target in ("library.a", *dice.sample(OTHERS, 2)):
    make(target)
    think(15, 40)
