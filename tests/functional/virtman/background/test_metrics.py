"""What Prometheus hears of an agent, over HTTP."""

import requests
from prometheus_client.parser import text_string_to_metric_families

from lab.ports import free_port
from tests.functional.virtman.base import SIZE, TestCase
from virtman.background.metrics import Metrics
from virtman.model.read_counts import Count
from virtman.stack.reads import Reads


class MetricsTest(TestCase):
    def setUp(self):
        super().setUp()
        self.node = self.bed.node()
        self.totals = self.node.boots.totals
        self.port = free_port()

    def start(self):
        metrics = Metrics(self.node.figures(), "127.0.0.1", self.port)
        with self.node.process.here():
            metrics.start()
        return metrics

    def scrape(self):
        """Return all figures, by name and labels."""
        answer = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=5)
        self.assertEqual(200, answer.status_code)
        return {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    def test_all_figures_are_told(self):
        self.addCleanup(self.start().stop)
        self.node.create("vm1")
        self.node.create("vm2")
        self.node.settle()
        self.totals.add(fetched=65536, used=4096, missed=8192, useless=1, recorded=2)
        over, under_way = Reads("over", SIZE), Reads("under-way", SIZE)
        over.seen = {0: Count(8, 0.5, (4, 0, 2, 0, 0)), 3: Count(8, 1.25, (0, 0, 0, 0, 1))}
        with self.totals.counting(over):
            pass
        counting = self.totals.counting(under_way)
        counting.__enter__()
        self.addCleanup(counting.__exit__, None, None, None)
        under_way.seen = {0: Count(8, 0.0, (3, 0, 0, 0, 0))}
        found = self.scrape()
        self.assertEqual(2, found["virtman_image_vms", "debian"])
        self.assertEqual(0, found["virtman_image_paths_failed", "debian"])
        self.assertIn(("virtman_image_reads_total", "debian", "hit"), found)
        self.assertEqual(0, found["virtman_image_waiting_seconds", "debian"])
        self.assertIn(("virtman_image_sent_bytes_total", "debian"), found)
        self.assertEqual(65536, found["virtman_prefetch_fetched_bytes_total",])
        self.assertEqual(4096, found["virtman_prefetch_used_bytes_total",])
        self.assertEqual(8192, found["virtman_prefetch_missed_bytes_total",])
        self.assertEqual(1, found["virtman_prefetch_useless_total",])
        self.assertEqual(2, found["virtman_boots_recorded_total",])
        self.assertEqual(0, found["virtman_prefetch_limit_bytes_per_second",])
        self.assertEqual(0, found["virtman_prefetch_window", "debian"])
        buckets = {name[1]: one for name, one in found.items() if name[0].endswith("_bucket")}
        self.assertEqual({"0.001": 7, "0.01": 7, "0.1": 9, "1.0": 9, "+Inf": 10}, buckets)
        self.assertEqual(1.75, found["virtman_boot_read_seconds_sum",])

    def test_a_share_is_told_while_a_cap_applies(self):
        self.addCleanup(self.start().stop)
        self.node.create("vm1")
        share = self.node.agent.images.attached("debian").share
        with share.taken(capped=True):
            for rate in (0, 4096, None):
                share.grant(rate)
                found = self.scrape().get(("virtman_prefetch_share_bytes_per_second", "debian"))
                self.assertEqual(rate, found)

    def test_paths_that_fail_are_counted(self):
        self.addCleanup(self.start().stop)
        self.node.create("vm1")
        self.node.settle()
        self.bed.source_dies()
        found = self.scrape()
        self.assertLess(0, found["virtman_image_paths_failed", "debian"])
        self.assertLess(0, found["virtman_image_path_failures_total", "debian"])
        self.bed.source_returns()

    def test_an_address_that_is_taken_does_not_keep_the_agent_from_starting(self):
        first = self.start()
        self.addCleanup(first.stop)
        self.start().stop()
        self.assertIn(f"no figures for Prometheus: 127.0.0.1 port {self.port}", self.log.output)
        self.scrape()

    def test_without_a_port_nobody_is_answered(self):
        metrics = Metrics(self.node.figures(), "127.0.0.1", 0)
        metrics.start()
        metrics.stop()
