"""What is left of the trees after a minute in which Volt was killed again and again."""

import asyncio
import random
import re
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import testtools
from testscenarios import load_tests_apply_scenarios as load_tests  # noqa: F401
from testtools.content import text_content

from lab.crowd import Crowd
from lab.volt import Volt, source
from tests.functional.volt import databases

CLIENTS = 64
HOSTS_EACH = 4
SECONDS = 60
LONGEST = 100_000  # characters of Volt's log, in what a test that failed says
IMAGES = (
    {"name": "forest"},
    {"name": "three", "stripes": 3, "fanout": 3},
    {"name": "paper", "shape": "tree"},
    {"name": "chain", "shape": "chain"},
    {"name": "ring", "shape": "ring", "stripes": 4, "fanout": 16},
)
WORKERS = {"postgresql": 4, "mariadb": 4, "sqlite": 1}


class TestChaos(testtools.TestCase):
    scenarios = databases.SCENARIOS
    database = "sqlite"

    def setUp(self):
        super().setUp()
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        folder = Path(cleanups.enter_context(tempfile.TemporaryDirectory()))
        url = databases.empty(self.database, cleanups)
        # On a slow machine a client may say nothing for as long as would expire its hosts.
        options = {"heartbeat": {"expiry": 10 * SECONDS}}
        self.volt = cleanups.enter_context(Volt(folder, url, WORKERS[self.database], options))
        self.addOnException(lambda error: self.addDetail("volt", text_content(self.told(error))))
        self.source = cleanups.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.dice = random.Random(7)

    def test_the_trees_are_sound_after_64_clients_and_many_deaths(self):
        asyncio.run(self.create_images())
        clients = [self.volt.client() for _ in range(CLIENTS)]
        crowd = Crowd(clients, [image["name"] for image in IMAGES], HOSTS_EACH, seed=7)
        with ThreadPoolExecutor(1) as pool:
            living = pool.submit(asyncio.run, crowd.live(SECONDS))
            deaths = self.kill()
            living.result()
        print(self.database, dict(crowd.done), "requests lost:", crowd.lost, "deaths:", deaths)
        assert deaths >= SECONDS / 8
        assert crowd.lost > 0
        assert not crowd.complaints, crowd.complaints[:20]
        faults = asyncio.run(crowd.faults(self.volt.client()))
        assert not faults, faults[:20]

    def told(self, error):
        """Return what Volt's log says of the hosts that an error names, and of its own faults."""
        hosts = "|".join({"Traceback", *re.findall(r"\bh\d+-\d+", str(error[1]))})
        told = re.compile(rf"\b({hosts})\b| ERROR volt|^  |^\w+(\.\w+)*(Error|Exception)\b")
        return "\n".join(filter(told.search, self.volt.log.read_text().splitlines()))[-LONGEST:]

    async def create_images(self):
        about = {"size": 512, "source": source(self.source.getsockname()[1])}
        client = self.volt.client()
        for image in IMAGES:
            answer = await client.ask("POST", "/v1/images", image | about)
            assert answer.status == 201, answer

    def kill(self):
        """Kill a worker every second or two, and all of Volt in one case of ten."""
        end, deaths = time.monotonic() + SECONDS - 2, 0
        while time.monotonic() < end:
            time.sleep(self.dice.uniform(0.5, 2))
            if self.dice.random() < 1 / 10:
                self.volt.kill()
                self.volt.start()
            else:
                self.volt.kill_worker(self.dice.randrange(64))
            deaths += 1
        return deaths
