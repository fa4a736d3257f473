"""Who keeps Volt's time, who is expired by it, and what a report of a dead parent brings."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import fixtures
from sqlalchemy import select

from lab.ports import free_port
from lab.waiting import wait_until
from tests.functional.volt import databases
from tests.functional.volt.service import ServiceCase
from volt.background.brake import FEW
from volt.background.clock import PATIENCE
from volt.db.clock import ClockTable
from volt.db.models import ClockRow

QUICK = {"heartbeat": {"interval": 0.5, "expiry": 4}}


class LivenessCase(ServiceCase):
    """Three workers on PostgreSQL, which expire soon."""

    database = "postgresql"
    workers = 3
    options = QUICK

    def setUp(self):
        super().setUp()
        self.clock = ClockTable(self.ground.engine)
        wait_until(lambda: self.clock.read().holder, "a holder of the clock", 10)

    def holder(self):
        """The process that counts."""
        return int(self.clock.read().holder.split(":")[1])

    @contextmanager
    def beating(self, *hosts):
        """Let hosts report now and then, whatever becomes of single reports."""
        stopped = threading.Event()

        def beat():
            while not stopped.wait(0.3):
                for host in hosts:
                    with suppress(OSError):
                        self.api.beat(host, x=1)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def hosts(self):
        return [host.host for host in self.ground.hosts.index()]

    def watch(self, seconds, until=lambda reading: False):
        """Return what the clock shows, many times a second."""
        readings = [self.clock.read()]
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until(readings[-1]):
            time.sleep(0.05)
            readings.append(self.clock.read())
        return readings

    def check_steps(self, readings):
        """Assert that time went on by single ticks."""
        ticks = [reading.tick for reading in readings]
        assert {after - before for before, after in pairwise(ticks)} <= {0, 1}


class TestClock(LivenessCase):
    def test_one_worker_counts_the_seconds(self):
        readings = self.watch(5)
        assert len({reading.holder for reading in readings}) == 1
        self.check_steps(readings)
        assert 3 <= readings[-1].tick - readings[0].tick <= 6

    def test_another_takes_over_from_a_killed_one(self):
        old = self.clock.read().holder
        os.kill(self.holder(), signal.SIGKILL)
        begun = time.monotonic()
        readings = self.watch(20, until=lambda reading: reading.holder != old)
        assert PATIENCE - 1.5 < time.monotonic() - begun < 10
        self.check_steps(readings)

    def test_one_that_stops_hands_it_on_at_once(self):
        second = self.serve()
        api = self.api_of(second)
        wait_until(lambda: api.call("GET", "/healthz").ok, "the second Volt", 5)
        old = self.clock.read().holder
        stopped = self.volt if self.holder() in self.volt.workers() else second
        stopped.stop()
        readings = self.watch(PATIENCE - 1, until=lambda reading: reading.holder not in ("", old))
        assert readings[-1].holder not in ("", old), readings[-1]

    def test_one_that_stops_ends_only_once_it_has_handed_it_on(self):
        with ThreadPoolExecutor(1) as pool:
            with self.ground.engine.begin() as connection:
                connection.execute(select(ClockRow.tick).with_for_update())
                stopped = pool.submit(self.volt.stop)
                time.sleep(2)  # a worker with nothing to answer would end within a second
            stopped.result(20)
        assert self.clock.read().holder == ""

    def test_a_suspended_one_neither_jumps_nor_acts_when_it_is_back(self):
        old, pid = self.clock.read(), self.holder()
        with self.beating("alive"):
            os.kill(pid, signal.SIGSTOP)
            try:
                readings = self.watch(12)
            finally:
                os.kill(pid, signal.SIGCONT)
            readings += self.watch(5)
        assert readings[-1].holder != old.holder
        assert len({reading.holder for reading in readings}) == 2
        self.check_steps(readings)
        assert self.hosts() == ["alive"]


class TestExpiry(LivenessCase):
    def test_a_silent_host_loses_its_place_and_its_children_get_another(self):
        for host in ("a", "b", "c"):
            self.api.join("x", host)
        with self.beating("b", "c"):
            wait_until(lambda: "a" not in self.hosts(), "the end of a", 12)
            time.sleep(1)
            assert self.hosts() == ["b", "c"]
        for tree in self.api.call("GET", "/v1/images/x/trees").json()["trees"]:
            assert sorted(node["host"] for node in tree["nodes"]) == ["b", "c"]
        kinds = [(event.kind, event.host) for event in self.ground.hosts.events()]
        assert ("expire", "a") in kinds

    def test_a_host_that_is_alive_after_all_is_told_and_joins_again(self):
        self.api.join("x", "a")
        wait_until(lambda: not self.hosts(), "the end of a", 12)
        assert self.api.beat("a", x=1)["unknown"] == ["x"]
        assert self.api.join("x", "a")["state"] == "joining"
        assert self.api.beat("a", x=99)["unknown"] == []

    def test_nobody_ages_while_no_volt_runs(self):
        self.api.join("x", "a")
        self.volt.kill()
        before = self.clock.read()
        time.sleep(6)
        assert self.clock.read() == before
        self.volt.start()
        wait_until(lambda: self.api.beat("a", x=1), "a heartbeat", 5)
        assert self.api.beat("a", x=1)["unknown"] == []


class TestCutOff(LivenessCase):
    """Volt hears two of its hosts, and the others no more: their places stay."""

    def setUp(self):
        super().setUp()
        self.near, self.far = ["n0", "n1"], [f"f{number}" for number in range(FEW + 1)]
        for host in self.near + self.far:
            self.api.join("x", host)

    def beating_apart(self, hosts):
        """Let each host report by itself."""
        beating = ExitStack()
        for host in hosts:
            beating.enter_context(self.beating(host))
        return beating

    def held(self):
        lines = self.api.call("GET", "/metrics").text.splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith("volt_hosts_held "))

    def kinds(self, *kinds):
        return [event.kind for event in self.ground.hosts.events() if event.kind in kinds]

    def test_all_are_kept_till_they_are_back(self):
        everybody = sorted(self.near + self.far)
        with self.beating_apart(self.near):
            wait_until(lambda: self.held() == len(self.far), "the brake", 15)
            time.sleep(3 * QUICK["heartbeat"]["expiry"])
            assert self.hosts() == everybody
            with self.beating_apart(self.far):
                wait_until(lambda: self.held() == 0, "the end of it", 15)
                time.sleep(2 * QUICK["heartbeat"]["expiry"])
                assert self.hosts() == everybody
        assert self.kinds("deaf", "expire") == ["deaf"]

    def test_the_next_worker_keeps_them_too_and_an_operator_lets_them_go(self):
        with self.beating_apart(self.near):
            wait_until(lambda: self.held() == len(self.far), "the brake", 15)
            os.kill(self.holder(), signal.SIGKILL)
            time.sleep(PATIENCE + 2 * QUICK["heartbeat"]["expiry"])
            assert self.hosts() == sorted(self.near + self.far)
            assert self.held() == len(self.far)
            assert self.ground.hosts.expire_silent(QUICK["heartbeat"]["expiry"]) == len(self.far)
            assert self.hosts() == sorted(self.near)
            wait_until(lambda: self.held() == 0, "the end of it", 15)


class TestGuard(LivenessCase):
    options = None

    def test_a_host_that_reports_after_the_look_is_not_expired(self):
        self.api.join("x", "a")
        before = self.clock.read().tick + 1
        assert self.ground.hosts.silent(before, 10) == ["a"]
        wait_until(lambda: self.clock.read().tick >= before, "a tick", 5)
        self.api.beat("a", x=1)
        self.ground.hosts.expire(["a"], before)
        assert self.hosts() == ["a"]
        assert self.api.call("GET", "/v1/images/x/hosts/a").ok
        self.ground.hosts.expire(["a"], self.clock.read().tick + 5)
        assert self.hosts() == []

    def test_a_host_that_joins_again_after_the_look_is_not_expired(self):
        self.api.join("x", "a")
        before = self.clock.read().tick + 1
        wait_until(lambda: self.clock.read().tick >= before, "a tick", 5)
        self.api.join("x", "a")
        self.ground.hosts.expire(["a"], before)
        assert self.hosts() == ["a"]

    def test_old_events_are_forgotten(self):
        for number in range(12):
            self.ground.hosts.note("join", "x", f"h{number}", "")
        self.ground.hosts.prune_events(5)
        hosts = [event.host for event in self.ground.hosts.events()]
        assert hosts == ["h11", "h10", "h9", "h8", "h7"]


class TestWallClock(ServiceCase):
    """Under libfaketime, which turns the wall clock of these processes and no other."""

    options = QUICK

    def setUp(self):
        [library] = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        folder = self.useFixture(fixtures.TempDir()).path
        self.time = Path(folder, "time")
        self.time.write_text("+0")
        for name, value in {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.time),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }.items():
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        super().setUp()

    def test_turning_it_expires_nobody_and_keeps_nobody(self):
        dates = set()
        self.api.join("x", "alive")
        self.api.join("x", "dead")
        for turned in ("+3600", "-3600", "+86400"):
            self.time.write_text(turned)
            for _ in range(10):
                assert self.api.beat("alive", x=1)["unknown"] == []
                dates.add(self.api.call("GET", "/healthz").headers["Date"][:16])
                time.sleep(0.3)
        assert [host.host for host in self.ground.hosts.index()] == ["alive"]
        assert len(dates) > 1  # the wall clock did turn


class TestReports(ServiceCase):
    """Parents and reporters are listening sockets here: Volt itself tries to connect."""

    def setUp(self):
        super().setUp()
        self.sockets = {}
        for host in ("p", "c", "d"):
            self.join(host)
        # With fan-out 2 and two stripes the second and third host read from the first one.
        self.child = next(
            host
            for host in ("c", "d")
            for feed in self.feeds(host)
            if feed["parent"]["host"] == "p"
        )

    def join(self, host):
        self.sockets[host] = socket.create_server(("127.0.0.1", free_port()))
        self.addCleanup(self.sockets[host].close)
        self.api.join("x", host, self.sockets[host].getsockname()[1])

    def feeds(self, host):
        return self.api.call("GET", f"/v1/images/x/hosts/{host}").json()["stripes"]

    def names(self):
        trees = self.api.call("GET", "/v1/images/x/trees").json()["trees"]
        return [sorted(node["host"] for node in tree["nodes"]) for tree in trees]

    def verdict(self, host, parent):
        begun = time.monotonic()
        answer = self.api.report("x", host, parent)
        assert answer.status_code == 200, answer.text
        assert time.monotonic() - begun < 2
        return answer.json()["verdict"]

    def test_a_parent_that_answers_stays_whatever_a_child_says(self):
        for _ in range(5):
            assert self.verdict(self.child, "p") == "alive"
        assert self.names() == [["c", "d", "p"]] * 2

    def test_a_dead_parent_is_expired_and_its_children_get_another(self):
        self.sockets["p"].close()
        assert self.verdict(self.child, "p") == "dead"
        assert self.names() == [["c", "d"]] * 2
        assert "p" not in {feed["parent"]["host"] for feed in self.feeds(self.child)}
        assert self.api.report("x", self.child, "p").status_code == 409

    def test_parent_and_standby_that_are_dead_are_expired_at_once(self):
        self.join("far")
        feed = next(feed for feed in self.feeds("far") if feed["standby"])
        parent, standby = (feed[role]["host"] for role in ("parent", "standby"))
        for host in (parent, standby):
            self.sockets[host].close()
        assert self.verdict("far", parent) == "dead"
        alive = sorted({"p", "c", "d", "far"} - {parent, standby})
        assert self.names() == [alive] * 2
        events = {(event.kind, event.host, event.detail) for event in self.ground.hosts.events()}
        assert ("parent_dead", parent, "reported by far") in events
        assert ("parent_dead", standby, f"feeds far, as {parent} did") in events

    def test_a_parent_that_hangs_is_dead_too(self):
        port = self.hang("p")
        self.api.join("x", "p", port)
        assert self.verdict(self.child, "p") == "dead"
        assert self.names() == [["c", "d"]] * 2

    def test_while_the_reporter_does_not_answer_either_nobody_is_judged(self):
        self.sockets["p"].close()
        self.sockets[self.child].close()
        assert self.verdict(self.child, "p") == "unclear"
        assert self.names() == [["c", "d", "p"]] * 2

    def test_an_evicted_host_learns_of_it_and_joins_again(self):
        port = self.sockets["p"].getsockname()[1]
        self.sockets["p"].close()
        assert self.verdict(self.child, "p") == "dead"
        with socket.create_server(("127.0.0.1", port)):
            assert self.api.beat("p", x=1)["unknown"] == ["x"]
            self.api.join("x", "p", port)
        assert self.names() == [["c", "d", "p"]] * 2

    def test_only_a_parent_or_standby_may_be_reported(self):
        self.api.join("x", "far", free_port())
        for host, parent, code in (
            (self.child, self.child, "volt.report.mismatch"),
            (self.child, "nobody", "volt.report.mismatch"),
            ("nobody", "p", "volt.host.unknown"),
        ):
            assert self.api.report("x", host, parent).json()["error"]["code"] == code
        assert self.api.report("y", "c", "p").json()["error"]["code"] == "volt.image.unknown"
        for body in ({}, {"parent": 7}, {"parent": "NO"}, {"parent": "p", "more": 1}):
            answer = self.api.call("POST", "/v1/images/x/hosts/c/reports", body)
            assert answer.status_code == 400

    def hang(self, host):
        """Return a port where connections are neither taken nor refused."""
        full = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(full.close)
        for _ in range(3):
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
            self.addCleanup(waiting.close)
        return full.getsockname()[1]


class TestHealth(ServiceCase):
    database = "postgresql"

    def test_a_database_that_hangs_is_said_soon(self):
        [main] = databases.server("postgresql").processes()[:1]
        serving = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        server = [main, *map(int, serving)]
        for pid in server:
            os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: not self.api.call("GET", "/healthz").ok, "bad health", 6)
            begun = time.monotonic()
            answer = self.api.call("GET", "/healthz")
            assert time.monotonic() - begun < 2
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "volt.database.unreachable"
        finally:
            for pid in server:
                os.kill(pid, signal.SIGCONT)
        wait_until(lambda: self.api.call("GET", "/healthz").ok, "good health", 15)
