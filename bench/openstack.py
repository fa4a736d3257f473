"""How soon servers of one snapshot run in a real OpenStack: a volume for each, or VirtMan.

On a bed of its own, with the same nodes for both. A server is ready once its guest, which reads
the data on its disk and writes some, has found all as it should be.
"""

import re
import time
from typing import Any

from bench.report import Progress
from lab.openstack.bed import OpenStack
from lab.openstack.servers import Servers

BED = "bench-openstack"
TYPES = {"stock": "lvm", "virtman": "virtman"}  # of volumes, by which a request chooses
_REQUEST = re.compile(r"\] (\S+) \(\) .* (GET|POST|PUT|DELETE) /v3/(\S*) =>")


def measure(servers: int, progress: Progress) -> list[dict[str, Any]]:
    """Return one entry of ``runs`` for each way."""
    cloud = OpenStack(BED, use_cachegroup=False)  # stock is stock
    step = progress.step("OpenStack", 1)
    with cloud.bed:
        cloud.start()
        step.advance(1)
        return [_Run(cloud, mode).measure(servers, progress) for mode in TYPES]


class _Run:
    def __init__(self, cloud: OpenStack, mode: str) -> None:
        self._cloud = cloud
        self._mode = mode
        self._servers = Servers(cloud)
        self._storage = cloud.nodes.storage

    def measure(self, count: int, progress: Progress) -> dict[str, Any]:
        """Boot servers, and delete them again."""
        step = progress.step(self._mode, count)
        self._servers.wait_nothing_left()
        snapshot = self._servers.snapshot()
        sent, calls = self._storage.sent_bytes(), self._cinder_calls()
        began = time.monotonic()
        self._servers.ask(snapshot, self._mode, count, TYPES[self._mode]).raise_for_status()
        made = [one.id for one in self._servers.all()]
        self._servers.wait(made, "ACTIVE")
        active = time.monotonic() - began
        reports = []
        for server in made:
            reports.append(self._servers.report(server))
            step.advance(1)
        ready = time.monotonic() - began
        sent, calls = self._storage.sent_bytes() - sent, self._cinder_calls() - calls
        volumes = len(self._servers.volumes())
        self._servers.delete(*made)
        return {
            "mode": self._mode,
            "servers": count,
            "last_active_s": round(active, 1),
            "last_ready_s": round(ready, 1),
            "right": all(one.ok for one in reports),
            "cinder_calls": calls,
            "volumes": volumes,
            "storage_sent_bytes": sent,
        }

    def _cinder_calls(self) -> int:
        """Count what Cinder was asked, but for the looks of virtman-golden at all volumes."""
        log = (self._cloud.settings.logs / "cinder-api.out").read_text(errors="replace")
        keeper = self._storage.address
        return sum(
            not (address == keeper and method == "GET" and "volumes/detail" in path)
            for address, method, path in _REQUEST.findall(log)
        )
