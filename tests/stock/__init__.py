"""Nova's own tests of what the driver extends: ``tools/test.sh patches`` provides a nova."""

import nova.tests.unit  # noqa: F401  chooses how nova's threads are made, before all else
