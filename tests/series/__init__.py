"""Tests of servers by volume type, with the patch and the driver: see ``tools/test.sh patches``."""

import nova.tests.functional  # noqa: F401  chooses how nova's threads are made, before all else
