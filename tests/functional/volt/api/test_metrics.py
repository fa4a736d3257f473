"""The numbers at /metrics are those of all workers, also of those that were killed."""

import os
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import requests

from lab.waiting import wait_until
from tests.functional.volt import crowd
from tests.functional.volt.base import TestCase

PATIENCE = 60  # seconds


class TestWorkers(TestCase):
    def setUp(self):
        super().setUp()
        cleanups = ExitStack()
        self.addCleanup(cleanups.close)
        crowd.populate(self.ground, 3)
        self.volt, self.url = crowd.serve(self.ground, cleanups, workers=2)
        self.headers = {"Authorization": f"Bearer {self.ground.operator}"}

    def get(self, path):
        return requests.get(self.url + path, headers=self.headers, timeout=PATIENCE).text

    def counted(self):
        """Return how many times the list of images was asked for."""
        found = re.search(
            r'^volt_request_seconds_count{.*route="/v1/images",.*} (\d+)',
            self.get("/metrics"),
            re.M,
        )
        return int(found[1])

    def test_a_killed_worker_takes_no_counts_along(self):
        for _ in range(20):
            self.get("/v1/images")
        assert self.counted() == 20
        before = self.volt.workers()
        for number in range(len(before)):
            self.volt.kill_worker(number)
        wait_until(lambda: self.are_others(before), "two other workers", PATIENCE)
        self.get("/v1/images")
        assert self.counted() == 21

    def test_methods_that_somebody_made_up_are_no_labels(self):
        for name in ("MADEUP", "GETT"):
            requests.request(name, self.url + "/v1/images", headers=self.headers, timeout=PATIENCE)
        text = self.get("/metrics")
        assert 'method="other"' in text
        assert "MADEUP" not in text

    def are_others(self, before):
        now = self.volt.workers()
        return len(now) == 2 and set(now).isdisjoint(before)

    def test_the_folder_of_counts_goes_with_volt(self):
        self.get("/metrics")
        (folder,) = {folder for pid in self.volt.workers() for folder in self.folders(pid)}
        assert folder.is_dir()
        (parent,) = set(self.volt.processes()) - set(self.volt.workers())
        os.kill(parent, signal.SIGTERM)
        wait_until(lambda: not folder.exists(), "the folder to go", PATIENCE)

    def folders(self, pid):
        """Return where a worker counts."""
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        files = [Path(line.split(maxsplit=5)[5]) for line in lines if "volt-metrics-" in line]
        return {file.parent for file in files}
