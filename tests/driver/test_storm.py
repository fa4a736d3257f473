"""Many servers of one image: what each costs does not depend on how many there are."""

import collections
import threading

import fixtures
from oslo_concurrency import lockutils

from tests.driver.nodes import IMAGE, NodesCase

FEW, MANY = 5, 50


class StormTest(NodesCase):
    def setUp(self):
        super().setUp()
        self.calls = collections.Counter()
        self.locks = set()
        self._guard = threading.Lock()
        for verb in ("create", "await_image"):
            self.count(self.agents["a"], verb)
        for verb in ("show", "download"):
            self.count(self.glance, verb)
        take = lockutils.lock

        def lock(name, *args, **kwargs):
            self.locks.add(name)
            return take(name, *args, **kwargs)

        self.useFixture(fixtures.MonkeyPatch("oslo_concurrency.lockutils.lock", lock))
        self.start_compute("a")

    def count(self, asked, verb):
        answer = getattr(asked, verb)

        def counted(*args, **kwargs):
            with self._guard:
                self.calls[verb] += 1
            return answer(*args, **kwargs)

        self.useFixture(fixtures.MockPatchObject(asked, verb, counted))

    def storm(self, count):
        """Return what a server of so many costs, and delete them."""
        self.calls.clear()
        body = self.body(flavor_id=self.flavor(disk=1, memory_mb=1))
        self.api.post_server({"server": body | {"min_count": count, "max_count": count}})
        servers = self.api.get_servers(detail=False)
        for server in servers:
            self._wait_for_server_parameter(server, {"status": "ACTIVE"}, max_retries=600)
        self.assertEqual(count, len(servers))
        for server in servers:
            self._delete_server(server)
        return {verb: calls / count for verb, calls in self.calls.items()}

    def test_each_server_of_fifty_asks_as_much_as_each_of_five(self):
        few, many = self.storm(FEW), self.storm(MANY)
        self.assertEqual(["await_image", "create", "show"], sorted(few))
        for verb in few:
            # A build that nova's database was too busy for begins again.
            self.assertLessEqual(many[verb], 1.1 * few[verb], (few, many))
        self.assertNotIn(IMAGE, " ".join(map(str, self.locks)))
