"""What a plan holds, and that each device comes after those it lies on."""

from dataclasses import replace
from itertools import pairwise

import testtools
from hypothesis import given
from hypothesis import strategies as st

from virtman.model import feeding, plan, planner, sizes
from virtman.model.address import Portal, Proof
from virtman.model.chain import Instance, Store
from virtman.model.hashtree import HashTree
from virtman.model.naming import Device
from virtman.model.placement import Feed, Parent, Placement, own_portal
from virtman.model.wanted import Parents, Wanted

BORN = "2026-01-02T03:04:05+00:00"
SIZE = 8 * 1024 * 1024
TREE = HashTree("aa", "bb")


def parent(host):
    return Parent(host, Portal("10.0.0.1", 3260, f"iqn.2026-11.org.virtman:{host}:i"))


def placement(*feeds):
    return Placement("i", SIZE, 7, Proof("i", "secret"), tuple(feeds))


def wanted(*feeds, stripes=2, tree=None, **words):
    """An image without a place in its trees; or with one, if there are feeds."""
    portal = own_portal("n", "i", "10.0.0.2", 3260)
    placed = placement(*feeds) if feeds else None
    return Wanted(
        "i", SIZE, len(feeds) or stripes, BORN, tree, portal, "/upper",
        placement=placed, parents=Parents.ALL if feeds else Parents.NONE, **words,
    )  # fmt: skip


def fed(*feeds, **words):
    """The steps of an image that depend on parents."""
    return [step for step in planner.image(wanted(*feeds, **words)) if feeding.is_fed(step)]


FEED = Feed(parent("a"), parent("b"))
hosts = st.sampled_from(["source", "a", "b", "c"])
feeds = st.builds(
    lambda one, two: Feed(parent(one), parent(two) if two else None), hosts, st.none() | hosts
)


class PlanTest(testtools.TestCase):
    def test_the_image_is_served_before_it_lies_on_anything(self):
        before = wanted()
        void, image, *above = planner.image(before)
        self.assertEqual(((), ()), (void.below, image.below))
        self.assertIsInstance(image, plan.Image)
        for export in (step for step in above if isinstance(step, plan.Export)):
            self.assertIn(image.device, export.below)
            self.assertEqual(image.sectors + before.portal.offset // 512, export.sectors)

    @given(st.integers(1, 5))
    def test_an_export_holds_its_own_stripe_and_nothing_else(self, stripes):
        steps = planner.image(wanted(stripes=stripes))
        exports = [step for step in steps if isinstance(step, plan.Export)]
        for index, export in enumerate(exports):
            roles = [device.role for device in export.below]
            self.assertEqual(["image" if one == index else "void" for one in range(stripes)], roles)
            self.assertEqual(index, export.portal.lun)

    @given(st.integers(1, 5))
    def test_a_piece_of_a_stripe_is_read_by_one_reader_after_the_other(self, count):
        steps = planner.image(wanted(*[Feed(parent("a"))] * count, warm=True))
        for role, own, feed in (("readers", "export", "image"), ("stripe", "regions", "s")):
            top = next(step for step in steps if step.device.role == role)
            self.assertIsInstance(top, plan.Stripe)
            self.assert_dealt(top, steps, own, feed, count)

    def assert_dealt(self, top, steps, role, feed, count):
        by_device = {step.device: step for step in steps}
        found = {device: by_device[device] for device in top.below}
        self.assertEqual(count * sizes.READERS, len(found))
        self.assertEqual(len(found), len({(one.path, one.offset) for one in found.values()}))
        self.assertEqual(count * sizes.REGION, len(top.below) * sizes.PIECE)
        last = None
        for piece, (device, begin) in enumerate(zip(top.below, top.begins, strict=True)):
            own = piece * sizes.PIECE // sizes.REGION
            self.assertEqual(sizes.HEADER, found[device].offset + begin)
            self.assertEqual(top.sectors * 512 + begin, found[device].sectors * 512)
            (lower,) = found[device].below
            self.assertEqual(f"{role}{own}", lower.role)
            below = [one.role for one in by_device[lower].below]
            lies_on = feed if feed == "image" else f"{feed}{own}"
            expected = [lies_on if index == own else "void" for index in range(count)]
            self.assertEqual(expected, below)
            self.assertNotEqual(last, device)
            last = device

    def test_what_is_lent_is_never_borrowed(self):
        found = wanted(FEED, FEED, tree=TREE, lends=True, lenders=("j",), basis="/basis")
        steps = {step.device.role: step for step in planner.image(found)}
        self.assertEqual([Device("i", "cache"), Device("j", "lent")], list(steps["mixture"].below))
        self.assertEqual([Device("i", "mixture"), Device("i", "hashes")],
                         list(steps["mixed"].below))  # fmt: skip
        below = [device.role for device in steps["image"].below]
        self.assertEqual(["mixed", "cache", "stripe"], below)
        self.assertEqual(["cache", "stripe"], [one.role for one in steps["lent"].below])

    def test_who_lends_queues_reads_in_its_image_alone(self):
        for lends in (False, True):
            steps = planner.image(wanted(FEED, FEED, tree=TREE, lends=lends))
            paths = [step for step in steps if isinstance(step, plan.Multipath)]
            self.assertEqual({not lends}, {step.queues for step in paths})

    def test_who_borrows_is_cold(self):
        found = wanted(FEED, FEED, tree=TREE, lenders=("j",), basis="/basis")
        self.assertEqual(planner.image(found), planner.image(replace(found, warm=True)))

    def test_a_copy_lends_too_and_borrows_nothing(self):
        found = wanted(FEED, FEED, tree=TREE, local=True, copy="/copy", lends=True, basis="/b")
        steps = {step.device.role: step for step in planner.image(found)}
        self.assertEqual(["whole"], [one.role for one in steps["lent"].below])
        self.assertNotIn("mixed", steps)
        spent = [step.device.role for step in planner.spent(found)]
        self.assertLess(spent.index("cache"), spent.index("mixture"))
        self.assertLess(spent.index("mixture"), spent.index("mixed"))

    def test_what_lies_on_others_goes_before_them(self):
        found = wanted(FEED, FEED, tree=TREE, lends=True, lenders=("j",), basis="/basis")
        roles = [step.device.role for step in planner.remains(found, (), (), ())]
        for lower, upper in pairwise(("hashes", "mixed", "image")):
            self.assertLess(roles.index(lower), roles.index(upper))
        for lower, upper in pairwise(("cache", "mixture", "mixed")):
            self.assertLess(roles.index(lower), roles.index(upper))
        self.assertLess(roles.index("stripe"), roles.index("lent"))

    def test_a_host_serves_stripes_as_luns_and_the_source_all_in_one(self):
        steps = fed(Feed(parent("a")), Feed(parent("b"), parent("source")))
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
        st.sampled_from(Parents),
        st.sampled_from([(None, True), (TREE, True), (TREE, False)]),
        st.booleans(),
    )
    def test_each_device_lies_on_devices_made_before(self, given_feeds, parents, hashes, warm):
        tree, verify = hashes
        last = replace(wanted(*given_feeds, tree=tree, verify=verify, warm=warm), parents=parents)
        made = set()
        for step in (
            *planner.image(last),
            *planner.instance(
                Instance("vm", "i", SIZE, "s2"),
                [Store("s1", "i", SIZE, "/s1"), Store("s2", "i", SIZE, "/s2", "s1")],
            ),
        ):
            self.assertLessEqual(set(step.below), made, step)
            made.add(step.device)

    @given(st.lists(feeds, min_size=1, max_size=4), st.sampled_from([None, TREE]), st.booleans())
    def test_what_is_wanted_later_is_added_to_what_was_wanted_first(self, given, tree, warm):
        whole = wanted(*given, tree=tree, warm=warm)
        before = [
            replace(whole, placement=None, parents=Parents.NONE),
            replace(whole, parents=Parents.NONE),
            replace(whole, parents=Parents.FIRST),
            whole,
        ]
        plans = [planner.image(one) for one in before]
        self.assertEqual(plans[0], plans[1][: len(plans[0])])
        for fewer, more in pairwise(plans):
            local = dict.fromkeys(one for one in fewer if not isinstance(one, plan.Multipath))
            self.assertEqual(list(local), list(dict.fromkeys(one for one in more if one in local)))
            self.assertLessEqual({one.device for one in fewer}, {one.device for one in more})

    @given(st.lists(feeds, min_size=1, max_size=4), st.sampled_from([None, TREE]))
    def test_vms_miss_a_few_sectors_only_while_something_below_can_fetch_them(self, given, tree):
        cold = wanted(*given, tree=tree)
        warm = replace(cold, warm=True)
        for before, after, order in (
            (cold, warm, ["stripe", "origin"]),
            (warm, cold, ["origin", "stripe"]),
        ):
            done = planner.image(before)
            roles = [step.device.role for step in planner.image(after) if step not in done]
            self.assertEqual(order, [one for one in roles if one in order])
            self.assertLessEqual({one.rstrip("0123456789") for one in roles},
                                 {"origin", "stripe", "regions", "fetcher"})  # fmt: skip

    @given(st.lists(feeds, min_size=1, max_size=4), st.sampled_from([None, TREE]), st.booleans())
    def test_a_table_is_swapped_only_after_paths_were_tried(self, given_feeds, tree, warm):
        steps = planner.image(wanted(*given_feeds, tree=tree, warm=warm))
        last = max(index for index, step in enumerate(steps) if feeding.is_fed(step))
        swapped = [index for index, step in enumerate(steps)
                   if step.device.role in ("stripe", "origin")
                   or (step.device.role == "image" and step.below)]  # fmt: skip
        self.assertLess(last, min(swapped))

    def test_zeros_begin_where_an_image_ends_not_its_last_block(self):
        odd = replace(wanted(Feed(parent("a"))), size=9 * 512)
        (base,) = (step for step in planner.image(odd) if isinstance(step, plan.Base))
        self.assertEqual((9, sizes.SPAN // 512), (base.end, base.sectors))

    def test_vms_of_a_layer_start_from_its_parents_base_and_the_layer_over_it(self):
        layer = replace(wanted(Feed(parent("a"))), lies_on="below")
        self.assertNotIn(Device("i", "base"), {step.device for step in planner.image(layer)})
        base = planner.base(layer)
        self.assertIsInstance(base, plan.Over)
        self.assertEqual((Device("below", "base"), Device("i", "origin")), base.below)
        self.assertEqual(sizes.SPAN // 512, base.sectors)
        order = [step.device.role for step in planner.remains(layer, (), (), ())]
        self.assertEqual("base", order[-1])

    def test_children_prove_what_they_are_asked_before_parents_are(self):
        steps = planner.image(wanted(Feed(parent("a"))))
        (admission,) = (step for step in steps if isinstance(step, plan.Admission))
        self.assertEqual(Proof("i", "secret"), admission.proof)
        self.assertLess(
            steps.index(admission), min(map(steps.index, filter(feeding.is_fed, steps)))
        )
        self.assertEqual(
            [], [one for one in planner.image(wanted()) if type(one) is plan.Admission]
        )

    @given(st.lists(feeds, min_size=1, max_size=4))
    def test_each_stripe_has_paths_of_its_own_best_first(self, given_feeds):
        steps = fed(*given_feeds)
        stripes = [step for step in steps if isinstance(step, plan.Multipath)]
        self.assertEqual(len(given_feeds), len(stripes))
        for index, (stripe, feed) in enumerate(zip(stripes, given_feeds, strict=True)):
            self.assertEqual(
                [Device("i", f"path{index}", one.host) for one in feed.parents],
                list(stripe.below),
            )

    def test_only_verified_blocks_go_up_and_only_verified_leaves_are_handed_on(self):
        steps = fed(Feed(parent("a"), parent("source")), Feed(parent("b")), tree=TREE)
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
        portal = own_portal("a", "i", "10.0.0.1", 3260)
        peer = Parent("a", portal)
        steps = planner.image(wanted(Feed(peer, parent("source")), Feed(peer), tree=TREE))
        where = {step.device.argument: (step.portal.lun, step.portal.offset)
                 for step in steps if step.device.role == "leafpath"}  # fmt: skip
        self.assertEqual({"a": (0, sizes.HEADER + SIZE), "source": (1, 0)}, where)
        export = next(step for step in steps if step.device.role == "export0")
        self.assertEqual(Device("i", "leafcache"), export.below[-1])
        self.assertEqual((sizes.HEADER + SIZE + SIZE // 128) // 512, export.sectors)

    def test_the_hash_tree_is_its_upper_levels_and_the_leaves_behind_them(self):
        size = 2 * 1024**3  # 32 bytes for each 4 KiB: 4096 blocks of leaves, 32, 1
        steps = planner.image(replace(wanted(Feed(parent("a")), tree=TREE), size=size))
        upper = next(step for step in steps if step.device.role == "upper")
        hashes = next(step for step in steps if step.device.role == "hashes")
        self.assertEqual((32 + 1) * 8, upper.sectors)
        self.assertEqual((4096 + 32 + 1) * 8, hashes.sectors)
        self.assertEqual(upper.sectors, hashes.upper)

    def test_what_lies_between_parents_and_leaves_goes_after_what_lies_above(self):
        devices = [Device("i", role, "a") for role in
                   ("verity1", "leafverity", "path1", "vm", "path0", "leafpath")]  # fmt: skip
        below, above = feeding.found(devices)
        self.assertEqual(["leafpath", "leafverity"], [step.device.role for step in below])
        self.assertEqual(["path1", "path0", "verity1"], [step.device.role for step in above])

    def test_without_standby_only_parents_are_connected(self):
        whole = wanted(Feed(parent("a"), parent("source")))
        steps = planner.image(replace(whole, parents=Parents.FIRST))
        self.assertEqual(
            [Device("i", "path0", "a"), Device("i", "s0")],
            [step.device for step in steps if feeding.is_fed(step)],
        )
        nobody = planner.image(replace(whole, parents=Parents.NONE))
        self.assertEqual([], [step for step in nobody if feeding.is_fed(step)])

    def test_the_cache_is_read_first_and_can_be_gone_round(self):
        steps = planner.image(wanted(Feed(parent("a"))))
        *_, top = (step for step in steps if step.device.role == "image")
        self.assertEqual((Device("i", "cache"), Device("i", "stripe")), top.below)

    @given(st.lists(feeds, min_size=1, max_size=4), st.sampled_from([None, TREE]), st.booleans())
    def test_what_may_be_left_goes_before_what_it_lies_on_and_voids_last(self, given, tree, warm):
        whole = wanted(*given, tree=tree, warm=warm)
        steps = {step.device: step for step in planner.image(whole)}
        earlier = plan.Void(Device("i", "void", "earlier"), 0, ())
        left = planner.remains(whole, (earlier,), *feeding.found(steps))
        order = list(dict.fromkeys(step.device for step in left))
        self.assertEqual([earlier.device, planner.image(whole)[0].device], order[:2])
        here = [step for step in steps.values() if not isinstance(step, plan.Admission)]
        self.assertLessEqual({step.device for step in here}, set(order))
        for step in here:
            for below in step.below:
                self.assertLess(order.index(below), order.index(step.device), step)


class KeptTest(testtools.TestCase):
    """What the cache of a node in a ring does not keep."""

    def image(self, **words):
        return planner.image(wanted(FEED, FEED, FEED, kept=frozenset([1]), **words))

    def step(self, steps, role):
        return [step for step in steps if step.device.role == role][-1]

    def roles(self, step):
        return [device.role for device in step.below]

    def test_other_stripes_pass_the_cache_by(self):
        steps = self.image()
        self.assertEqual(["stripe", "cache", "stripe"], self.roles(self.step(steps, "kept")))
        self.assertEqual(["kept", "stripe"], self.roles(self.step(steps, "image")))

    def test_vms_read_it_through_page_caches_whatever_it_was(self):
        self.assertEqual(self.image(), self.image(warm=True))

    def test_what_is_lent_or_mixed_passes_it_by_too(self):
        steps = self.image(tree=TREE, lenders=("o",), lends=True, basis="/basis")
        self.assertEqual(["kept", "lent"], self.roles(self.step(steps, "mixture")))
        self.assertEqual(["kept", "stripe"], self.roles(self.step(steps, "lent")))

    def test_it_goes_where_the_cache_keeps_all_of_a_ring_or_there_is_a_copy(self):
        before = wanted(FEED, FEED)
        self.assertNotIn("kept", [one.device.role for one in planner.spent(before)])
        in_ring = replace(before, placement=replace(before.placement, owns=frozenset()))
        self.assertIn("kept", [one.device.role for one in planner.spent(in_ring)])
        self.assertNotIn(
            "kept",
            [one.device.role for one in planner.spent(replace(in_ring, kept=frozenset([0])))],
        )
        copy = wanted(FEED, FEED, tree=TREE, copy="/copy", local=True)
        self.assertIn("kept", [one.device.role for one in planner.spent(copy)])
        left = [one.device.role for one in planner.remains(before, (), (), ())]
        self.assertLess(left.index("cache"), left.index("kept"))
        self.assertLess(left.index("kept"), left.index("image"))


class LocalTest(testtools.TestCase):
    """What is read from a copy of all of it."""

    def planned(self, **words):
        return planner.image(wanted(FEED, FEED, tree=TREE, copy="/copy", **words))

    def test_no_parent_no_cache_and_no_stripe_is_needed(self):
        kinds = {type(step) for step in self.planned(local=True)}
        self.assertEqual(set(), kinds & {plan.Path, plan.Cache})
        roles = {step.device.role for step in self.planned(local=True)}
        self.assertEqual(set(), roles & {"s0", "s1", "stripe", "cache"})

    def test_what_comes_from_the_copy_is_verified_by_the_tree(self):
        steps = {step.device.role: step for step in self.planned(local=True)}
        for top, whole, by in (("image", "whole", "hashes"), ("leaves", "leafwhole", "upper")):
            self.assertEqual([whole], [one.role for one in steps[top].below])
            self.assertIsInstance(steps[whole], plan.Verity)
            self.assertEqual(by, steps[whole].below[1].role)

    def test_vms_read_it_as_what_is_cold_whatever_it_was(self):
        (origin,) = [
            step for step in self.planned(local=True, warm=True) if step.device.role == "origin"
        ]
        self.assertEqual(["readers"], [one.role for one in origin.below])

    def test_each_way_of_reading_has_what_the_other_one_needs_taken_away(self):
        for local in (True, False):
            mine = {step.device for step in self.planned(local=local)}
            others = {step.device for step in self.planned(local=not local)}
            fed = wanted(FEED, FEED, tree=TREE, copy="/copy", local=local)
            spent = {step.device for step in planner.spent(fed)}
            self.assertEqual(set(), mine & spent)
            paths = {one for one in others if one.argument in ("a", "b") and one.role[0] != "r"}
            self.assertEqual(set(), others - mine - paths - spent)

    def test_an_image_without_a_copy_has_nothing_to_take_away(self):
        self.assertEqual((), planner.spent(wanted(FEED, FEED, tree=TREE)))

    def test_all_of_it_goes_with_the_image(self):
        fed = wanted(FEED, FEED, tree=TREE, copy="/copy", local=True)
        every = {step.device for step in planner.remains(fed, (), (), ())}
        mine = {step.device for step in self.planned(local=True)} - {Device("i", "children")}
        self.assertEqual(set(), mine - every)
