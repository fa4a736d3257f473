"""A plan is carried out as far as parents answer."""

from pathlib import Path

import testtools

from virtman.errors import KernelFailure, ParentUnreachable
from virtman.model import plan
from virtman.model.naming import Device
from virtman.stack.builder import Stack

S0, S1, TOP = Device("i", "s0"), Device("i", "s1"), Device("i", "stripe")


def path(stripe, host):
    return plan.Path(Device("i", f"path{stripe}", host), 8, (), None)


def verity(stripe, host):
    below = (Device("i", f"path{stripe}", host),)
    return plan.Verity(Device("i", f"verity{stripe}", host), 8, below, None)


STEPS = (
    path(0, "a"), verity(0, "a"), path(0, "b"), verity(0, "b"),
    plan.Multipath(S0, 8, (Device("i", "verity0", "a"), Device("i", "verity0", "b"))),
    path(1, "a"), verity(1, "a"),
    plan.Multipath(S1, 8, (Device("i", "verity1", "a"),)),
    plan.Stripe(TOP, 8, (S0, S1), 8, (0, 0)),
)  # fmt: skip


class Devices:
    """Stands in for all layers: what is up, on what, and who was asked for a disk."""

    def __init__(self):
        self.up = {}
        self.silent = set()
        self.cut = set()
        self.asked = []

    def layer(self, step):
        return _Device(self, step)


class _Device:
    def __init__(self, devices, step):
        self.devices = devices
        self.step = step

    def up(self, below):
        host = self.step.device.argument
        if isinstance(self.step, plan.Path):
            self.devices.asked.append(host)
            if host in self.devices.silent and not self.is_up():
                raise ParentUnreachable(f"{host} does not answer", host)
            if host in self.devices.cut:
                raise ParentUnreachable(f"{host} is cut off", host)
        self.devices.up[str(self.step.device)] = list(below)
        return str(self.step.device)

    def is_up(self):
        return str(self.step.device) in self.devices.up


class UpTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.devices = Devices()
        self.stack = Stack("none", (), Path("/nowhere"))
        self.stack.layer = self.devices.layer

    def test_each_device_lies_on_those_below(self):
        built = self.stack.up(STEPS)
        self.assertEqual((frozenset(), frozenset(), {}), (built.lost, built.unfed, built.silent))
        self.assertEqual(["virtman_i_verity0_a", "virtman_i_verity0_b"],
                         self.devices.up["virtman_i_s0"])  # fmt: skip
        self.assertEqual(["virtman_i_s0", "virtman_i_s1"], self.devices.up["virtman_i_stripe"])

    def test_a_standby_takes_the_place_of_a_parent_that_does_not_answer(self):
        self.devices.silent = {"a"}
        built = self.stack.up(STEPS)
        self.assertEqual(["virtman_i_verity0_b"], self.devices.up["virtman_i_s0"])
        self.assertEqual([], self.devices.up["virtman_i_s1"])
        self.assertEqual({S1}, built.unfed)
        self.assertEqual({"a"}, built.silent.keys())
        self.assertEqual({one.device for one in (path(0, "a"), verity(0, "a"), path(1, "a"),
                                                 verity(1, "a"))}, built.lost)  # fmt: skip
        self.assertIn("virtman_i_stripe", self.devices.up)

    def test_who_does_not_answer_is_asked_once(self):
        self.devices.silent = {"a"}
        built = self.stack.up(STEPS)
        self.assertEqual(["a", "b"], self.devices.asked)
        self.stack.up(STEPS, built.paths, built.silent)
        self.assertEqual(["a", "b", "b"], self.devices.asked)

    def test_a_path_that_is_there_is_used_whoever_else_does_not_answer(self):
        self.stack.up(STEPS[5:7])
        self.devices.silent = {"a"}
        built = self.stack.up(STEPS)
        self.assertEqual(["virtman_i_verity1_a"], self.devices.up["virtman_i_s1"])
        self.assertEqual(frozenset(), built.unfed)

    def test_a_path_that_is_cut_off_stays_beside_others(self):
        self.stack.up(STEPS)
        self.devices.cut = {"a"}
        built = self.stack.up(STEPS[:5])
        self.assertEqual((frozenset(), frozenset()), (built.lost, built.unfed))
        self.assertEqual({"a"}, built.silent.keys())
        below = [path.rpartition("/")[2] for path in self.devices.up["virtman_i_s0"]]
        self.assertEqual(["virtman_i_verity0_a", "virtman_i_verity0_b"], below)

    def test_a_multipath_stays_as_it_is_while_all_its_paths_are_cut_off(self):
        self.stack.up(STEPS)
        self.devices.cut = {"a"}
        built = self.stack.up(STEPS)
        self.assertEqual({S1}, built.unfed)
        self.assertEqual([], self.devices.up["virtman_i_s1"])

    def test_a_new_path_to_who_is_cut_off_is_lost(self):
        self.devices.cut = {"a"}
        built = self.stack.up(STEPS)
        self.assertEqual({"a"}, built.missing)
        self.assertEqual(["virtman_i_verity0_b"], self.devices.up["virtman_i_s0"])

    def test_the_error_names_all_who_did_not_answer(self):
        self.devices.silent = {"a", "b"}
        failure = self.stack.up(STEPS).failure()
        self.assertEqual(
            ("a does not answer; b does not answer", "a"), (str(failure), failure.host)
        )

    def test_another_failure_ends_it(self):
        def fail(step):
            raise KernelFailure(str(step.device))

        self.stack.layer = fail
        self.assertRaises(KernelFailure, self.stack.up, STEPS)
