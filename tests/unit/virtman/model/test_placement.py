"""In which stripes it is too early to follow a placement."""

import testtools

from virtman.model.address import Portal, Proof
from virtman.model.placement import Feed, Parent, Placement


def parent(host):
    return Parent(host, Portal("10.0.0.1", 3260, f"iqn.2026-11.org.virtman:{host}:i"))


A, B, C, SOURCE = map(parent, ("a", "b", "c", "source"))


def placement(*feeds):
    return Placement("i", 512, 1, Proof("i", "secret"), feeds)


class EarlyTest(testtools.TestCase):
    def early(self, before, now, dead=()):
        return placement(now).early(placement(before), lambda one: one not in dead)

    def test_a_parent_that_is_ready_is_followed(self):
        self.assertEqual({}, self.early(Feed(A, SOURCE), Feed(B, A)))

    def test_a_parent_that_is_not_ready_is_not_and_those_of_before_are_kept(self):
        kept = self.early(Feed(A, SOURCE), Feed(B, A, ready=False))
        self.assertEqual({0: Feed(A, SOURCE)}, kept)

    def test_of_those_of_before_only_who_works_is_kept(self):
        new = Feed(B, A, ready=False)
        self.assertEqual({0: Feed(SOURCE)}, self.early(Feed(A, SOURCE), new, dead=[A]))
        self.assertEqual({0: Feed(A)}, self.early(Feed(A, SOURCE), new, dead=[SOURCE]))
        self.assertEqual({}, self.early(Feed(A, SOURCE), new, dead=[A, SOURCE]))
        self.assertEqual({}, self.early(Feed(A), new, dead=[A]))

    def test_the_parent_of_before_is_followed_whatever_it_does(self):
        self.assertEqual({}, self.early(Feed(A, SOURCE), Feed(A, C, ready=False)))

    def test_who_reads_from_nobody_follows(self):
        self.assertEqual({}, placement(Feed(A, ready=False)).early(None, lambda _: True))

    def test_what_is_kept_takes_the_place_of_the_new_feed(self):
        now = placement(Feed(A), Feed(B, ready=False))
        self.assertEqual(placement(Feed(A), Feed(C)), now.but({1: Feed(C)}))
        self.assertEqual(now, now.but({}))
