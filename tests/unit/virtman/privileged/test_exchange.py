"""Slots of shared memory, and what fits in one."""

import threading

import testtools

from virtman.privileged import chunks, exchange
from virtman.privileged.exchange import SLOT


class ExchangeTest(testtools.TestCase):
    def test_each_has_a_slot_of_its_own_and_waits_while_all_are_taken(self):
        taken = []
        with exchange.slot() as first, exchange.view(first) as memory:
            memory[:5] = b"first"
            with exchange.slot() as second, exchange.view(second) as other:
                self.assertNotEqual(first, second)
                other[:5] = b"other"
                self.assertEqual(SLOT, len(other))
            self.assertEqual(b"first", bytes(memory[:5]))
            slots = [exchange.slot() for _ in range(exchange._COUNT - 1)]
            for one in slots:
                taken.append(one.__enter__())
            done = threading.Event()
            waiting = threading.Thread(target=self.take, args=(taken, done), daemon=True)
            waiting.start()
            self.assertFalse(done.is_set())
            for one in slots:
                one.__exit__(None, None, None)
            self.assertTrue(done.wait(10))
        waiting.join()
        self.assertNotIn(first, taken)

    def take(self, taken, done):
        with exchange.slot() as number:
            taken.append(number)
        done.set()

    def test_a_slot_is_given_back_by_who_fails(self):
        for _ in range(2 * exchange._COUNT):
            self.assertRaises(ZeroDivisionError, self.fail_in_one)

    def fail_in_one(self):
        with exchange.slot():
            raise ZeroDivisionError

    def test_runs_are_parted_to_what_a_slot_holds(self):
        runs = [(0, 4096), (3 * SLOT, 2 * SLOT), (9 * SLOT, 512)]
        parts = list(chunks._portions(runs))
        self.assertEqual([SLOT, SLOT, 4096 + 512], [sum(n for _, n in one) for one in parts])
        self.assertEqual([(0, 4096), (3 * SLOT, SLOT - 4096)], parts[0])
        self.assertEqual([(5 * SLOT - 4096, 4096), (9 * SLOT, 512)], parts[2])
        self.assertEqual([], list(chunks._portions([])))
