"""What a plan holds, and that each device comes after those it lies on."""

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.errors import InvalidSize
from virtman.model import plan
from virtman.model.address import Portal, Proof
from virtman.model.chain import Instance, Store
from virtman.model.hashtree import HashTree
from virtman.model.naming import Device
from virtman.model.plan import Feed, Parent, Placement

BORN = "2026-01-02T03:04:05+00:00"
SIZE = 8 * 1024 * 1024
TREE = HashTree("aa", "bb")


def parent(host):
    return Parent(host, Portal("10.0.0.1", 3260, f"iqn.2026-11.org.virtman:{host}:i"))


def placement(*feeds):
    return Placement("i", SIZE, 7, Proof("i", "secret"), tuple(feeds))


hosts = st.sampled_from(["source", "a", "b", "c"])
feeds = st.builds(
    lambda one, two: Feed(parent(one), parent(two) if two else None), hosts, st.none() | hosts
)


class PlanTest(testtools.TestCase):
    def test_the_image_is_served_before_it_lies_on_anything(self):
        portal = plan.own_portal("n", "i", "10.0.0.2", 3260)
        steps = plan.serve("i", SIZE, portal, 2, BORN, hashed=False)
        void, image, *above = steps
        self.assertEqual(((), ()), (void.below, image.below))
        self.assertIsInstance(image, plan.Image)
        for export in (step for step in above if isinstance(step, plan.Export)):
            self.assertIn(image.device, export.below)
            self.assertEqual(image.sectors + portal.offset // 512, export.sectors)

    @given(st.integers(1, 5))
    def test_an_export_holds_its_own_stripe_and_nothing_else(self, stripes):
        portal = plan.own_portal("n", "i", "10.0.0.2", 3260)
        steps = plan.serve("i", SIZE, portal, stripes, BORN, hashed=False)
        exports = [step for step in steps if isinstance(step, plan.Export)]
        for index, export in enumerate(exports):
            roles = [device.role for device in export.below]
            self.assertEqual(["image" if one == index else "void" for one in range(stripes)], roles)
            self.assertEqual(index, export.portal.lun)

    @given(st.integers(1, 5))
    def test_a_piece_of_a_stripe_is_read_by_one_reader_after_the_other(self, count):
        portal = plan.own_portal("n", "i", "10.0.0.2", 3260)
        *_, readers = above = plan.serve("i", SIZE, portal, count, BORN, hashed=False)
        below = plan.assemble("i", SIZE, count, BORN, warm=True)
        stripe = next(step for step in below if isinstance(step, plan.Stripe))
        self.assert_dealt(readers, above, "export", "image", count)
        self.assert_dealt(stripe, below, "regions", "s", count)

    def assert_dealt(self, top, steps, role, feed, count):
        by_device = {step.device: step for step in steps}
        found = {device: by_device[device] for device in top.below}
        self.assertEqual(count * plan.READERS, len(found))
        self.assertEqual(len(found), len({(one.path, one.offset) for one in found.values()}))
        self.assertEqual(count * plan.REGION, len(top.below) * plan.PIECE)
        last = None
        for piece, (device, begin) in enumerate(zip(top.below, top.begins, strict=True)):
            own = piece * plan.PIECE // plan.REGION
            self.assertEqual(plan.HEADER, found[device].offset + begin)
            self.assertEqual(top.sectors * 512 + begin, found[device].sectors * 512)
            (lower,) = found[device].below
            self.assertEqual(f"{role}{own}", lower.role)
            below = [one.role for one in by_device[lower].below]
            lies_on = feed if feed == "image" else f"{feed}{own}"
            expected = [lies_on if index == own else "void" for index in range(count)]
            self.assertEqual(expected, below)
            self.assertNotEqual(last, device)
            last = device

    def test_a_host_serves_stripes_as_luns_and_the_source_all_in_one(self):
        steps = plan.connect(placement(Feed(parent("a")), Feed(parent("b"), parent("source"))))
        paths = {step.device: step.portal.lun for step in steps if isinstance(step, plan.Path)}
        self.assertEqual(
            {
                Device("i", "path0", "a"): 0,
                Device("i", "path1", "b"): 1,
                Device("i", "path1", "source"): 0,
            },
            paths,
        )

    @given(
        st.lists(feeds, min_size=1, max_size=4),
        st.booleans(),
        st.sampled_from([(None, True), (TREE, True), (TREE, False)]),
        st.booleans(),
    )
    def test_each_device_lies_on_devices_made_before(self, given_feeds, standby, hashes, warm):
        tree, verify = hashes
        placed = placement(*given_feeds)
        portal = plan.own_portal("n", "i", "10.0.0.2", 3260)
        steps = (
            *plan.serve("i", SIZE, portal, len(given_feeds), BORN, hashed=tree is not None),
            *(plan.hashes("i", SIZE, "/upper") if tree and verify else ()),
            *plan.assemble("i", SIZE, len(given_feeds), BORN, warm=warm),
            plan.origin("i", SIZE, warm=warm),
            *plan.connect(placed, tree, verify=verify, standby=standby),
            *plan.instance(
                Instance("vm", "i", SIZE, "s2"),
                [Store("s1", "i", SIZE, "/s1"), Store("s2", "i", SIZE, "/s2", "s1")],
            ),
        )
        made = set()
        for step in steps:
            self.assertLessEqual(set(step.below), made, step)
            made.add(step.device)

    @given(st.lists(feeds, min_size=1, max_size=4))
    def test_each_stripe_has_paths_of_its_own_best_first(self, given_feeds):
        steps = plan.connect(placement(*given_feeds))
        stripes = [step for step in steps if isinstance(step, plan.Multipath)]
        self.assertEqual(len(given_feeds), len(stripes))
        for index, (stripe, feed) in enumerate(zip(stripes, given_feeds, strict=True)):
            self.assertEqual(
                [Device("i", f"path{index}", one.host) for one in feed.parents],
                list(stripe.below),
            )

    def test_only_verified_blocks_go_up_and_only_verified_leaves_are_handed_on(self):
        placed = placement(Feed(parent("a"), parent("source")), Feed(parent("b")))
        steps = plan.connect(placed, TREE)
        made = {step.device: step for step in steps}
        tops = {step.device.role: step for step in steps if isinstance(step, plan.Multipath)}
        self.assertEqual({"leaves", "s0", "s1"}, tops.keys())
        for role, hashes, parents in (
            ("leaves", "upper", ["a", "source"]),
            ("s0", "hashes", ["a", "source"]),
            ("s1", "hashes", ["b"]),
        ):
            ends = [made[device] for device in tops[role].below]
            self.assertEqual(parents, [end.device.argument for end in ends])
            for end in ends:
                self.assertEqual((TREE, Device("i", hashes)), (end.tree, end.below[1]))

    def test_the_leaves_lie_behind_the_image_and_at_the_source_in_a_lun_of_their_own(self):
        portal = plan.own_portal("a", "i", "10.0.0.1", 3260)
        peer = Parent("a", portal)
        steps = plan.connect(placement(Feed(peer, parent("source")), Feed(peer)), TREE)
        where = {step.device.argument: (step.portal.lun, step.portal.offset)
                 for step in steps if step.device.role == "leafpath"}  # fmt: skip
        self.assertEqual({"a": (0, plan.HEADER + SIZE), "source": (1, 0)}, where)
        export = next(step for step in plan.serve("i", SIZE, portal, 2, BORN, hashed=True)
                      if step.device.role == "export0")  # fmt: skip
        self.assertEqual(Device("i", "leafcache"), export.below[-1])
        self.assertEqual((plan.HEADER + SIZE + SIZE // 128) // 512, export.sectors)

    def test_what_lies_between_parents_and_leaves_goes_after_what_lies_above(self):
        devices = [Device("i", role, "a") for role in
                   ("verity1", "leafverity", "path1", "vm", "path0", "leafpath")]  # fmt: skip
        below, above = plan.found(devices)
        self.assertEqual(["leafpath", "leafverity"], [step.device.role for step in below])
        self.assertEqual(["path1", "path0", "verity1"], [step.device.role for step in above])

    def test_without_standby_only_parents_are_connected(self):
        steps = plan.connect(placement(Feed(parent("a"), parent("source"))), standby=False)
        self.assertEqual(
            [Device("i", "path0", "a"), Device("i", "s0")], [step.device for step in steps]
        )

    def test_the_cache_is_read_first_and_can_be_gone_round(self):
        top = plan.assemble("i", SIZE, 2, "born today", warm=False)[-1]
        self.assertEqual((Device("i", "cache"), Device("i", "stripe")), top.below)

    def test_sizes_that_no_device_can_have_are_refused(self):
        for size in (0, -512, 511, 513, 1000):
            self.assertRaises(InvalidSize, plan.sectors, size)

    def test_standbys_take_the_place_of_a_parent(self):
        placed = placement(Feed(parent("a"), parent("b")), Feed(parent("c"), parent("source")))
        self.assertEqual(
            placement(Feed(parent("b")), Feed(parent("c"), parent("source"))), placed.without("a")
        )
        self.assertEqual(placed, placed.without("b"))
        self.assertIsNone(placed.without("a").without("b"))
