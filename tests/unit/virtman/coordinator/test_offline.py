"""Which requests still reach a Volt that does not answer, and when it counts as back."""

from pathlib import Path

import fixtures
import testtools

from virtman.coordinator.interface import CoordinatorSilent, Report
from virtman.coordinator.memory import Memory
from virtman.coordinator.offline import Remembering
from virtman.errors import CoordinatorUnreachable, Forbidden, ImageUnknown
from virtman.model.address import Portal

PORTAL = Portal("192.0.2.1", 3260, "iqn.2026-11.org.virtman:a:debian")
OF_IMAGES = (
    ("image", "debian"), ("upper_hashes", "debian"), ("join", "debian", PORTAL),
    ("placement", "debian"), ("ready", "debian", 1), ("report", "debian", "b"),
    ("leave", "debian"), ("needed", "debian"), ("remove", "debian"),
    ("profile", "debian", "boot"), ("store_profile", "debian", "boot", b"", None),
)  # fmt: skip
REPEATED = (
    ("heartbeat", Report({})), ("placements", "", 0), ("certify", "request", ("192.0.2.1", 1)),
    ("listener", "b"),
)  # fmt: skip


class FakeVolt:
    url, host = "http://volt:8778", "a"

    def __init__(self):
        self.asked = []
        self.answer = None

    def __getattr__(self, verb):
        def ask(*words):
            self.asked.append(verb)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return ask


class SilenceTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.volt = FakeVolt()
        memory = Memory(Path(self.useFixture(fixtures.TempDir()).path))
        self.seen = Remembering(self.volt, memory)

    def ask(self, verb, *words):
        getattr(self.seen, verb)(*words)

    def fall_silent(self, error=None):
        self.volt.answer = error or CoordinatorSilent("timed out")
        self.assertRaises(CoordinatorUnreachable, self.ask, "listener", "b")
        self.volt.asked.clear()

    def test_what_an_image_needs_is_not_asked_of_a_silent_volt(self):
        self.fall_silent()
        for words in OF_IMAGES:
            self.assertRaises(CoordinatorUnreachable, self.ask, *words)
        self.assertEqual([], self.volt.asked)

    def test_what_is_repeated_is_asked_all_the_same(self):
        for words in REPEATED:
            self.fall_silent()
            self.assertRaises(CoordinatorUnreachable, self.ask, *words)
            self.assertEqual([words[0]], self.volt.asked)

    def test_a_volt_that_refuses_connections_costs_nothing_and_is_asked(self):
        self.fall_silent(CoordinatorUnreachable("refused"))
        for words in OF_IMAGES:
            self.assertRaises(CoordinatorUnreachable, self.ask, *words)
        # a join first asks whether the image is the one that was remembered
        self.assertEqual(
            ["image" if one[0] == "join" else one[0] for one in OF_IMAGES], self.volt.asked
        )

    def test_whatever_it_answers_it_is_back(self):
        for answer in (("192.0.2.2", 1), Forbidden("another host's token")):
            self.fall_silent()
            self.volt.answer = answer
            if isinstance(answer, Exception):
                self.assertRaises(Forbidden, self.ask, "listener", "b")
            else:
                self.ask("listener", "b")
            self.volt.answer = ImageUnknown("debian")
            self.assertRaises(ImageUnknown, self.ask, "image", "debian")
