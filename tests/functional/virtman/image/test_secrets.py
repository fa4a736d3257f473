"""Who does not know an image's secret gets in nowhere."""

from concurrent.futures import ThreadPoolExecutor

from tests.functional.virtman.image.test_placement import PlacementCase
from virtman.model.address import iqn
from virtman.privileged import iscsi


class SecretsTest(PlacementCase):
    def target(self, node):
        return self.bed.network.targets[node.ip, 3260, iqn(node.name, "debian")]

    def proofs(self, node):
        return {session.key[2]: session.proof for session in node.kernel.sessions}

    def test_children_prove_what_their_parents_ask_for(self):
        one, two = self.pair()
        asked = self.target(one).chap
        self.assertEqual(asked, self.target(two).chap)
        self.assertEqual(asked, self.proofs(one)[iqn("b", "debian")])
        self.assertEqual(("debian", "secret-of-the-source"), self.proofs(one)[self.bed.source.iqn])

    def test_a_stranger_gets_in_nowhere(self):
        one, stranger = self.bed.node("a"), self.bed.node("b")
        one.create("vm1")
        for where in (iqn("a", "debian"), self.bed.source.iqn):
            ip, port, _ = next(key for key in self.bed.network.targets if key[2] == where)
            for proof in (("", ""), ("debian", "guessed"), ("virtman", "guessed")):
                with stranger.process.here():
                    self.assertRaises(PermissionError, iscsi.login, ip, port, where, *proof)

    def test_an_export_that_waits_for_its_placement_lets_nobody_in(self):
        node, seen = self.bed.node(), []
        join = node.agent.coordinator.join

        def look_and_join(*where):
            seen.append(self.target(node).chap)
            return join(*where)

        node.agent.coordinator.join = look_and_join
        node.create("vm1")
        self.assertEqual([None], seen)
        self.assertIsNotNone(self.target(node).chap)

    def test_a_new_secret_ends_no_session_and_is_proved_at_the_next_login(self):
        one, two = self.pair()
        sessions = [list(map(id, node.kernel.sessions)) for node in (one, two)]
        new = self.bed.volt.renew_secret("debian")
        self.settle(one, two)
        self.assertEqual([new, new], [self.target(node).chap for node in (one, two)])
        self.assertEqual(sessions, [list(map(id, node.kernel.sessions)) for node in (one, two)])
        self.assertEqual(new, self.proofs(one)[iqn("b", "debian")])
        self.assertEqual(new, self.proofs(two)[iqn("a", "debian")])

    def test_a_session_that_was_cut_off_is_opened_anew_with_the_new_secret(self):
        self.check_cut_off(*self.pair())

    def test_it_is_opened_anew_though_nobody_reads(self):
        one, two = self.pair()
        one.kernel.is_read = False
        self.check_cut_off(one, two)

    def check_cut_off(self, one, two):
        key = (two.ip, 3260, iqn("b", "debian"))
        (session,) = (session for session in one.kernel.sessions if session.key == key)
        target = self.bed.network.targets.pop(key)
        session.is_lost = True
        target.chap = new = self.bed.volt.renew_secret("debian")
        one.beat()
        self.bed.network.targets[key] = target
        self.settle(two, one)
        (session,) = (session for session in one.kernel.sessions if session.key == key)
        self.assertEqual(new, session.proved)
        self.assertEqual(["b", "source"], self.parents(one, 1))

    def test_a_parent_that_hears_of_the_new_secret_later_is_waited_for(self):
        one, two = self.bed.node("a"), self.bed.node("b")
        one.create("vm1")
        one.settle()
        self.bed.volt.renew_secret("debian")
        with two.process.here(), ThreadPoolExecutor(1) as pool:
            made = pool.submit(two.create, "vm1")
            self.await_(lambda: ("login", one.ip) in two.kernel.log)
            one.beat()
            made.result()
        self.assertEqual(["a", "source"], self.parents(two, 0))
