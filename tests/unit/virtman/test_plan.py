"""What a plan holds, and that each device comes after those it lies on."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman import plan
from virtman.errors import InvalidSize
from virtman.naming import Device
from virtman.plan import Feed, Parent, Placement, Portal

SIZE = 8 * 1024 * 1024


def parent(host):
    return Parent(host, Portal("10.0.0.1", 3260, f"iqn.2026-11.org.virtman:{host}:i"))


def placement(*feeds):
    return Placement("i", SIZE, 7, tuple(feeds))


hosts = st.sampled_from(["source", "a", "b", "c"])
feeds = st.builds(
    lambda one, two: Feed(parent(one), parent(two) if two else None), hosts, st.none() | hosts
)


class PlanTest(testtools.TestCase):
    def test_the_image_is_served_before_it_lies_on_anything(self):
        portal = plan.own_portal("n", "i", "10.0.0.2", 3260)
        image, export, reader = plan.serve("i", SIZE, portal)
        self.assertEqual((), image.below)
        self.assertEqual((image.device,), export.below)
        self.assertEqual((export.device,), reader.below)
        self.assertEqual(image.sectors + portal.offset // 512, export.sectors)

    @given(st.lists(feeds, min_size=1, max_size=4), st.booleans())
    def test_each_device_lies_on_devices_made_before(self, given_feeds, standby):
        placed = placement(*given_feeds)
        steps = (
            *plan.serve("i", SIZE, plan.own_portal("n", "i", "10.0.0.2", 3260)),
            *plan.assemble("i", SIZE, len(given_feeds)),
            *plan.connect(placed, standby=standby),
            *plan.instance("i", SIZE, "vm", "/store"),
        )
        made = set()
        for step in steps:
            self.assertLessEqual(set(step.below), made, step)
            made.add(step.device)

    @given(st.lists(feeds, min_size=1, max_size=4))
    def test_each_parent_is_connected_once_and_feeds_its_stripes(self, given_feeds):
        steps = plan.connect(placement(*given_feeds))
        paths = [step for step in steps if isinstance(step, plan.Path)]
        self.assertEqual(len(paths), len({step.device for step in paths}))
        stripes = [step for step in steps if isinstance(step, plan.Multipath)]
        self.assertEqual(len(given_feeds), len(stripes))
        for stripe, feed in zip(stripes, given_feeds, strict=True):
            self.assertEqual(
                [one.host for one in feed.parents], [device.argument for device in stripe.below]
            )

    def test_without_standby_only_parents_are_connected(self):
        steps = plan.connect(placement(Feed(parent("a"), parent("source"))), standby=False)
        self.assertEqual(
            [Device("i", "path", "a"), Device("i", "s0")], [step.device for step in steps]
        )

    def test_the_cache_is_read_first_and_can_be_gone_round(self):
        top = plan.assemble("i", SIZE, 2)[-1]
        self.assertEqual((Device("i", "cache"), Device("i", "stripe")), top.below)

    def test_sizes_that_no_device_can_have_are_refused(self):
        for size in (0, -512, 511, 513, 1000):
            self.assertRaises(InvalidSize, plan.sectors, size)
