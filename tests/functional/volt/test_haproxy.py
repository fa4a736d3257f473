"""The sample configuration of HAProxy, before three volt-api that die and come back."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from lab import processes
from lab.ports import free_port
from lab.waiting import wait_until
from tests.functional.volt.service import Api, ServiceCase

SAMPLE = Path(__file__).resolve().parents[3] / "etc" / "haproxy" / "haproxy.cfg"


class TestHaproxy(ServiceCase):
    database = "postgresql"

    def setUp(self):
        super().setUp()
        self.volts = [self.volt, self.serve(), self.serve()]
        port = free_port()
        text = SAMPLE.read_text().replace("192.0.2.10:8778", f"127.0.0.1:{port}")
        for number, volt in enumerate(self.volts, 1):
            text = text.replace(f"192.0.2.1{number}:8778", f"127.0.0.1:{volt.port}")
        assert "192.0.2" not in text
        config = Path(self.ground.folder, "haproxy.cfg")
        config.write_text(text)
        log = Path(self.ground.folder, "haproxy.log")
        process = processes.start(["haproxy", "-db", "-f", str(config)], "haproxy", log)
        self.cleanups.callback(process.end)
        self.api = Api(f"http://127.0.0.1:{port}", self.ground.operator)
        wait_until(self.serves, "haproxy", 15)

    def serves(self):
        try:
            return self.api.call("GET", "/healthz").ok
        except requests.ConnectionError:
            return False

    def test_clients_see_nothing_of_a_volt_that_dies(self):
        stopped = threading.Event()

        def work(name):
            answers = []
            while not stopped.is_set():
                answers.append(self.api.call("GET", "/v1/images/x"))
                answers.append(self.api.ask_to_join("x", name))
                answers.append(self.api.poll(name, 1, ""))
            return answers

        with ThreadPoolExecutor(6) as pool:
            works = [pool.submit(work, f"h{number}") for number in range(6)]
            time.sleep(1)
            self.volts[1].kill()
            time.sleep(2)
            self.volts[2].stop()
            time.sleep(2)
            self.volts[1].start()
            time.sleep(2)
            stopped.set()
        answers = [answer for work in works for answer in work.result()]
        assert len(answers) > 50
        failed = [(a.request.method, a.url, a.text[:200]) for a in answers if not a.ok]
        assert not failed, failed
        assert self.api_of(self.volts[1]).call("GET", "/healthz").ok

    def test_a_long_poll_lasts_through_it(self):
        self.api.join("x", "a")
        tag = self.api.poll("a", 0).headers["ETag"]
        begun = time.monotonic()
        assert self.api.poll("a", 12, tag).status_code == 304
        assert time.monotonic() - begun > 11
