"""What of another program is compared with what it was, and what is said of it."""

from types import SimpleNamespace

import testtools

from virtman.openstack import guard


class Stock:
    def __init__(self):
        self.number = 1

    def stop(self):
        return self.number

    @staticmethod
    def count():
        return 2

    def start(self):
        return 3


class Ours(Stock):
    """Overrides some, and has a method of its own."""

    def __init__(self):
        super().__init__()

    def stop(self):
        return 0

    def count(self):
        return 0

    def more(self):
        return 0


METHODS = guard.overridden(Ours, Stock) | guard.named(Stock, "start")
RELEASE = SimpleNamespace(METHODS=guard.digests(METHODS))


class GuardTest(testtools.TestCase):
    def test_what_is_overridden_or_called_is_compared(self):
        names = {"Stock.__init__", "Stock.count", "Stock.start", "Stock.stop"}
        self.assertEqual(names, set(METHODS))

    def test_release_that_is_as_it_was_is_known(self):
        other = SimpleNamespace(METHODS=dict.fromkeys(METHODS, ""))
        self.assertEqual("2", guard.check(METHODS, {"1": other, "2": RELEASE}))

    def test_method_that_differs_is_named(self):
        for method in (Ours.stop, len):
            error = self.assertRaises(
                guard.NovaUnknown, guard.check, METHODS | {"Stock.stop": method}, {"2": RELEASE}
            )
            self.assertIn("Nearest is 2, but these differ: Stock.stop.", str(error))
