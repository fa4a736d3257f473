"""How the real volt-api starts, serves many at once and stops."""

import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import requests

from tests.functional.volt.service import ServiceCase


class TestStart(ServiceCase):
    def test_it_starts_without_a_warning(self):
        self.api.beat("a")
        assert "warning" not in self.volt.log.read_text().lower()


class TestStop(ServiceCase):
    def test_who_waits_is_answered_and_idle_connections_do_not_hold_a_restart_up(self):
        tag = self.api.poll("a", 0).headers["ETag"]
        with requests.Session() as idle, ThreadPoolExecutor(20) as pool:
            idle.get(f"{self.api.url}/healthz")
            polls = [pool.submit(self.api.poll, "a", 50, tag) for _ in range(20)]
            time.sleep(0.5)
            begun = time.monotonic()
            self.volt.stop()
            assert {poll.result().status_code for poll in polls} == {304}
            assert time.monotonic() - begun < 5


class TestLongPoll(ServiceCase):
    def test_a_join_wakes_those_whom_it_concerns_within_a_second(self):
        self.api.join("x", "h0")
        delays = []
        for number in range(1, 12):
            # the newest host gets a new parent or standby often enough; it is told of its own join
            host = f"h{number}"
            tag = self.api.poll(host, 0).headers["ETag"]
            woken = []

            def wait(host=host, tag=tag, woken=woken):
                woken.append((self.api.poll(host, 20, tag), time.monotonic()))

            thread = threading.Thread(target=wait)
            thread.start()
            time.sleep(0.1)
            self.api.join("x", host)
            joined = time.monotonic()
            thread.join()
            [(answer, at)] = woken
            assert answer.status_code == 200
            assert [one["image"] for one in answer.json()["placements"]] == ["x"]
            assert answer.headers["ETag"] != tag
            delays.append(at - joined)
        assert max(delays) < 1, delays
        assert statistics.median(delays) < 0.5

    def test_without_news_the_answer_comes_at_the_end(self):
        self.api.join("x", "a")
        tag = self.api.poll("a", 0).headers["ETag"]
        begun = time.monotonic()
        assert self.api.poll("a", 1, tag).status_code == 304
        assert 0.9 < time.monotonic() - begun < 3

    def test_other_tags_are_answered_at_once(self):
        self.api.join("x", "a")
        begun = time.monotonic()
        for tag in (None, '"0"', 'W/"1", "2"'):
            assert self.api.poll("a", 20, tag).status_code == 200
        assert time.monotonic() - begun < 5


class TestGreenlets(ServiceCase):
    """On SQLite one greenlet that yielded inside a transaction would block all others."""

    # Who finds the database locked waits for so long and no longer, and then tries again.
    options: ClassVar = {"database": {"busy_timeout": 0.2}}

    def test_nobody_ever_finds_the_database_locked(self):
        def come_and_go(number):
            self.api.join("x", f"h{number}")
            self.api.beat(f"h{number}", x=1)
            assert self.api.call("DELETE", f"/v1/images/x/hosts/h{number}").ok

        with ThreadPoolExecutor(32) as pool:
            list(pool.map(come_and_go, range(64)))
        assert self.api.call("GET", "/v1/images/x").json()["hosts"] == 0
        assert "volt_database_retries_total 0.0" in self.api.call("GET", "/metrics").text
