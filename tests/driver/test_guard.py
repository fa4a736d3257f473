"""The driver starts with a nova that it was written for, and says what differs in another."""

import importlib.metadata
import inspect
from unittest import mock

import testtools
from nova.virt.libvirt import driver as stock
from nova.virt.libvirt import imagebackend

from virtman.openstack import backend, driver, guard
from virtman.openstack.releases import RELEASES

METHODS = driver.methods()
RELEASE = importlib.metadata.version("nova")


class GuardTest(testtools.TestCase):
    def test_this_nova_is_as_it_was(self):
        # What differs is what has to be looked at; tools/nova_release.sh then writes that file.
        self.assertEqual([], guard.differences(METHODS, RELEASES[RELEASE].METHODS))
        self.assertEqual(RELEASE, guard.check(METHODS, RELEASES))

    def test_method_that_only_one_of_both_has_differs(self):
        known = RELEASES[RELEASE].METHODS
        gone = {name: method for name, method in METHODS.items() if name != "Image.cache"}
        self.assertEqual(["Image.cache"], guard.differences(gone, known))
        self.assertEqual(
            ["Image.cache"], guard.differences({**METHODS, "Image.cache": None}, known)
        )
        new = {**METHODS, "Image.new": imagebackend.Image.cache}
        self.assertEqual(["Image.new"], guard.differences(new, known))

    def test_driver_of_a_nova_that_differs_does_not_start(self):
        def cleanup(self):
            pass

        with mock.patch.object(stock.LibvirtDriver, "cleanup", cleanup):
            self.assertRaises(guard.NovaUnknown, driver.LibvirtDriver, None)

    def test_driver_of_a_nova_that_lacks_a_method_does_not_start(self):
        with mock.patch.object(stock.LibvirtDriver, "_undefine_domain"):
            del stock.LibvirtDriver._undefine_domain
            methods = driver.methods()
        self.assertIsNone(methods["LibvirtDriver._undefine_domain"])
        self.assertRaises(guard.NovaUnknown, guard.check, methods, RELEASES)

    def test_methods_take_what_those_take_that_they_replace(self):
        mro = driver.LibvirtDriver.__mro__
        classes = [(ours, stock.LibvirtDriver) for ours in mro[: mro.index(stock.LibvirtDriver)]]
        classes += [(backend.Backend, imagebackend.Backend), (backend.RootDisk, imagebackend.Image)]
        refused = []
        for ours, theirs in classes:
            names = [one.partition(".")[2] for one in guard.overridden(ours, theirs)]
            refused += [
                name
                for name in names
                if name != "__init__" and not takes(getattr(ours, name), getattr(theirs, name))
            ]
        self.assertEqual([], refused)

    def test_method_that_lacks_an_argument_is_found(self):
        self.assertFalse(takes(lambda self, one: 0, lambda self, one, two=None: 0))
        self.assertFalse(takes(lambda self, one, three=None: 0, lambda self, one, two=None: 0))
        self.assertTrue(takes(lambda self, one, **more: 0, lambda self, one, *, two: 0))
        self.assertTrue(takes(lambda self, *args, **more: 0, lambda one, two=None: 0))


def takes(ours, theirs):
    """Tell whether all arguments of one method can be those of another, by place or by name."""
    parameters = inspect.signature(theirs).parameters
    given = [one for one in parameters.values() if one.name != "self"]
    placed = [one.name for one in given if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = [one for one in placed if parameters[one].default is inspect.Parameter.empty]
    named = [one.name for one in given if one.kind is one.KEYWORD_ONLY]
    optional = [one for one in placed if one not in required]
    signature = inspect.signature(ours)
    try:
        signature.bind("self", *placed, **dict.fromkeys(named))
        signature.bind("self", *required, **dict.fromkeys(optional + named))
    except TypeError:
        return False
    return True
