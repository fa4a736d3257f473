"""Tests of the driver, in nova's own fixtures: ``tools/test.sh patches`` provides a nova."""

import nova.tests.functional  # noqa: F401  chooses how nova's threads are made, before all else
