"""The real volt-api: over https, with certificates made on the spot, and reloaded."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import requests

from lab.waiting import wait_until
from tests.functional.volt.base import TestCase

LISTENING = re.compile(r"Listening at: (https?://127\.0\.0\.1:\d+)")


class TestService(TestCase):
    program: tuple[str, ...] = ("-m", "volt.cmd.api")

    def setUp(self):
        super().setUp()
        self.certificate("volt")

    def file(self, name):
        return str(self.ground.folder / name)

    def certificate(self, name):
        """Make a key and a certificate that vouches for itself."""
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-nodes", "-days", "1", "-subj", f"/CN={name}",
                "-addext", "subjectAltName=IP:127.0.0.1",
                "-keyout", self.file(f"{name}.key"), "-out", self.file(f"{name}.pem"),
            ],
            check=True,
            capture_output=True,
        )  # fmt: skip

    def configure(self, **options):
        lines = [f"{name} = {value}" for name, value in options.items()]
        path = self.ground.folder / "tls.conf"
        path.write_text(
            "\n".join(["[api]", "bind = 127.0.0.1:0", *lines])
            + f"\n[database]\nconnection = {self.ground.url}\n"
        )
        return str(path)

    def start(self, **options):
        """Start volt-api; return the URL at which it says it listens."""
        log = self.ground.folder / "log"
        command = [sys.executable, *self.program, "--config-file", self.configure(**options)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self.addCleanup(self.process.wait, 30)
        self.addCleanup(self.process.terminate)
        wait_until(
            lambda: LISTENING.search(log.read_text()) or self.process.poll() is not None,
            "Volt",
            30,
        )
        found = LISTENING.search(log.read_text())
        assert found, log.read_text()
        return found[1]

    def test_volt_speaks_https_and_nothing_else(self):
        cert = self.file("volt.pem")
        url = self.start(tls_cert=cert, tls_key=self.file("volt.key"))
        assert url.startswith("https://")
        headers = {"Authorization": f"Bearer {self.ground.operator}"}
        answer = requests.get(f"{url}/v1/images", headers=headers, verify=cert, timeout=30)
        assert answer.json() == {"images": [], "next": None}
        self.assertRaises(requests.exceptions.SSLError, requests.get, url, timeout=30)
        plain = url.replace("https:", "http:")
        self.assertRaises(requests.ConnectionError, requests.get, plain, timeout=30)

    def test_with_an_authority_clients_show_certificates(self):
        self.certificate("proxy")
        cert = self.file("volt.pem")
        key, authority = self.file("volt.key"), self.file("proxy.pem")
        url = self.start(tls_cert=cert, tls_key=key, tls_ca=authority) + "/healthz"
        own = (self.file("proxy.pem"), self.file("proxy.key"))
        assert requests.get(url, verify=cert, cert=own, timeout=30).status_code == 200
        self.assertRaises(requests.ConnectionError, requests.get, url, verify=cert, timeout=30)

    def test_a_reload_reads_the_policy_file_again(self):
        url = self.start()
        headers = {"Authorization": f"Bearer {self.ground.operator}"}

        def status():
            try:
                return requests.get(f"{url}/v1/images", headers=headers, timeout=30).status_code
            except requests.ConnectionError:  # the worker that was asked just ended
                return None

        assert status() == 200
        (self.ground.folder / "policy.yaml").write_text('"image:list": "role:reader"')
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: status() == 403, "the new policy", 30)

    def test_a_reload_with_a_policy_that_cannot_be_used_changes_nothing(self):
        url = self.start()
        policy = self.ground.folder / "policy.yaml"
        for fault in ("- broken\n: [", '"image:list": 5'):
            policy.write_text(fault)
            self.refuse_to_reload("policy file policy.yaml cannot be used")
            self.replace_worker()
            assert requests.get(f"{url}/healthz", timeout=30).status_code == 200
        policy.unlink()
        self.reload()
        assert requests.get(f"{url}/healthz", timeout=30).status_code == 200

    def test_a_reload_between_a_new_certificate_and_its_key_changes_nothing(self):
        self.certificate("old")
        self.certificate("new")
        cert, key = self.file("volt.pem"), self.file("volt.key")
        shutil.copy(self.file("old.pem"), cert)
        shutil.copy(self.file("old.key"), key)
        url = self.start(tls_cert=cert, tls_key=key)

        def is_served(name):
            trusted = self.file(f"{name}.pem")
            return requests.get(f"{url}/healthz", verify=trusted, timeout=30).status_code == 200

        shutil.copy(self.file("new.pem"), cert)
        self.refuse_to_reload(r"\[api\] tls_cert")
        assert is_served("old")
        self.replace_worker()
        assert is_served("old")
        shutil.copy(self.file("new.key"), key)
        self.reload()
        assert is_served("new")

    def reload(self):
        """Ask for a reload; return once new workers alone serve."""
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.workers() and not before & self.workers(), "new workers", 30)

    def refuse_to_reload(self, why):
        """Ask for a reload; return once it is refused, with the same workers."""
        wait_until(self.workers, "workers", 30)
        log, before = self.ground.folder / "log", self.workers()
        refused = re.compile(f"ERROR .*Not reloaded.*{why}")
        count = len(refused.findall(log.read_text()))
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(refused.findall(log.read_text())) > count, "a refusal", 30)
        assert self.workers() == before

    def replace_worker(self):
        """Kill the worker; return once another one is there."""
        before = self.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: self.workers() - before, "another worker", 30)

    def workers(self):
        """Return the processes that serve."""
        pid = self.process.pid
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))

    def test_a_body_that_trickles_is_not_waited_for(self):
        self.program = ("-c", "from volt.cmd import api; api.BODY = 1; api.main()")
        port = int(self.start().rpartition(":")[2])
        for method, path in (("GET", "/healthz"), ("PUT", "/v1/hosts/a/heartbeat")):
            token = f"Authorization: Bearer {self.ground.operator}"
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\n{token}\r\nContent-Length: 999\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(head.encode())
                assert "Connection: close" in self.trickle(connection)

    def trickle(self, connection):
        """Send a byte now and then; return what was answered before the end."""
        answer = b""
        connection.settimeout(0.1)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with suppress(TimeoutError):
                try:
                    connection.sendall(b" ")
                    part = connection.recv(4096)
                except (ConnectionResetError, BrokenPipeError):
                    part = b""
                if not part:
                    return answer.decode()
                answer += part
        raise AssertionError("the connection is still open")

    def test_what_does_not_fit_is_told_before_the_start(self):
        self.certificate("other")
        cert = self.file("volt.pem")
        for options in (
            {"tls_cert": cert},
            {"tls_ca": cert},
            {"tls_cert": cert, "tls_key": self.file("other.key")},
            {"tls_cert": cert, "tls_key": self.file("none.key")},
        ):
            command = [sys.executable, "-m", "volt.cmd.api"]
            command += ["--config-file", self.configure(**options)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            assert result.returncode == 1
            assert result.stderr.startswith("Error: [api] tls_cert")
