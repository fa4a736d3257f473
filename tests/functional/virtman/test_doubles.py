"""Doubles of root verbs and look-ups are called as these are."""

import inspect

import testtools
from testtools.matchers import Equals

from tests.functional.virtman.doubles.kernel import Kernel
from tests.functional.virtman.doubles.network import Network
from tests.functional.virtman.doubles.verbs import LOOK_UPS, ROOT_VERBS

FUNCTIONS = ROOT_VERBS | LOOK_UPS
WITHOUT_DOUBLE: dict[str, str] = {}
"""Functions such as ``dm.create`` that no test needs a double of, and why."""


def short(module):
    return module.__name__.rpartition(".")[2]


def signature(function):
    return inspect.signature(function, eval_str=True)


class DoublesTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.doubles = Kernel(Network(), "a").doubles

    def test_each_function_has_a_double_or_a_reason_for_none(self):
        missing = {
            f"{short(module)}.{name}"
            for module, functions in FUNCTIONS.items()
            for name in functions
            if not hasattr(self.doubles.get(module), name)
        }
        self.assertEqual(set(WITHOUT_DOUBLE), missing)

    def test_doubles_take_and_return_what_the_functions_do(self):
        for module, functions in FUNCTIONS.items():
            for name, real in functions.items():
                double = getattr(self.doubles.get(module), name, None)
                if double is not None:
                    where = f"{short(module)}.{name}"
                    self.expectThat(signature(double), Equals(signature(real)), where)

    def test_a_double_can_do_nothing_that_its_module_cannot(self):
        for module, double in self.doubles.items():
            verbs = {name for name, _ in inspect.getmembers(double, callable) if name[0] != "_"}
            self.assertEqual(set(), verbs - set(FUNCTIONS[module]), short(module))
