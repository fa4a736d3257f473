"""When what is sent over links arrives."""

import math

import simpy
import testtools

from planning.simulation.network import Network


class NetworkTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.env = simpy.Environment()
        self.arrived = []

    def network(self, *capacity, hop_s=0.0, step_s=0.0, most=1e9):
        return Network(
            self.env, [math.inf, *capacity], most=most, hop_s=hop_s, size=100.0, step_s=step_s
        )

    def session(self, network, name, *links):
        return network.open(links, lambda thing: self.arrived.append((self.env.now, name, thing)))

    def later(self, seconds, call, *arguments):
        def wait():
            yield self.env.timeout(seconds)
            call(*arguments)

        self.env.process(wait())

    def test_one_thing_after_another(self):
        network = self.network(50.0, hop_s=0.25)
        session = self.session(network, "a", 1)
        network.send(session, 7)
        network.send(session, 8)
        self.env.run(until=100)
        self.assertEqual([(2.25, "a", 7), (4.25, "a", 8)], self.arrived)

    def test_who_comes_later_takes_a_share(self):
        network = self.network(100.0)
        a, b = self.session(network, "a", 1), self.session(network, "b", 1)
        network.send(a, 1)
        self.later(0.5, network.send, b, 2)
        self.env.run(until=100)
        # 50 bytes alone, 50 at half the rate; then the other has it all
        self.assertEqual([(1.5, "a", 1), (2.0, "b", 2)], self.arrived)

    def test_what_is_on_a_session_that_ends_never_arrives(self):
        network = self.network(100.0)
        a, b = self.session(network, "a", 1), self.session(network, "b", 1)
        network.send(a, 1)
        network.send(b, 2)
        self.later(1.0, network.close, a)
        self.env.run(until=100)
        self.assertEqual([(1.5, "b", 2)], self.arrived)
        network.close(a)  # again
        c = self.session(network, "c", 1)  # in its place
        network.send(c, 3)
        self.env.run(until=200)
        self.assertEqual((101.0, "c", 3), self.arrived[-1])

    def test_who_comes_as_another_ends_has_sent_nothing_yet(self):
        network = self.network(100.0)
        a = self.session(network, "a", 1)
        network.send(a, 1)

        def move():
            network.close(a)
            network.send(self.session(network, "b", 1), 2)

        self.later(0.9, move)
        self.env.run(until=100)
        self.assertEqual([(1.9, "b", 2)], self.arrived)

    def test_places_of_sessions_that_ended_are_used_again(self):
        network = self.network(100.0)
        for number in range(1000):
            session = self.session(network, str(number), 1)
            network.send(session, number)
            self.env.run(until=(number + 1) * 2.0)
            network.close(session)
        self.assertEqual(1000, len(self.arrived))
        self.assertEqual(64, len(network._sessions))

    def test_all_sessions_may_end_before_links_are_shared_out(self):
        network = self.network(100.0, step_s=1.0)
        session = self.session(network, "a", 1)
        network.send(session, 1)
        self.later(0.5, network.close, session)
        self.env.run(until=10)
        self.assertEqual([], self.arrived)
        network.send(self.session(network, "b", 1), 2)
        self.env.run(until=20)
        self.assertEqual([(11.0, "b", 2)], self.arrived)

    def test_a_session_has_a_limit_of_its_own(self):
        network = self.network(100.0, most=10.0)
        network.send(self.session(network, "a", 1), 1)
        self.env.run(until=100)
        self.assertEqual([(10.0, "a", 1)], self.arrived)

    def test_steps_save_rounds_and_lose_no_bytes(self):
        network = self.network(100.0, step_s=0.3)
        session = self.session(network, "a", 1)
        for thing in range(50):
            network.send(session, thing)
        self.env.run(until=1000)
        self.assertEqual(list(range(50)), [thing for _, _, thing in self.arrived])
        self.assertAlmostEqual(50, self.arrived[-1][0], delta=0.31)
