"""What somebody does who uses part of a program, and thinks in between; the same for a seed."""

import random
import sys
import time

dice = random.Random(int(sys.argv[1]))  # noqa: S311 - no secret


def think(least: float, most: float) -> None:
    """Let seconds pass."""
    time.sleep(dice.uniform(least, most))
