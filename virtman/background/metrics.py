"""What the agent counts, for Prometheus: asked of the kernel and of the agent at each scrape."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from virtman.background.boots import Boots
from virtman.background.copying import Copying
from virtman.image.attachment import look
from virtman.model.read_counts import BOUNDS
from virtman.node.images import Images

LOG = logging.getLogger(__name__)


class Figures(Collector):
    """All figures of one agent; those of an image begin anew when it is attached anew."""

    def __init__(self, images: Images, boots: Boots, copying: Copying) -> None:
        self.images = images
        self.copying = copying
        self.boots = boots

    def collect(self) -> Iterator[Metric]:
        """Yield all figures."""
        attached = self.images.attachments()
        seen = look(attached)
        reads = CounterMetricFamily(
            "virtman_image_reads",
            "Reads of an image's cache, by whether it could answer.",
            labels=["image", "result"],
        )
        sent = CounterMetricFamily(
            "virtman_image_sent_bytes", "Bytes that children read of an image.", labels=["image"]
        )
        vms = GaugeMetricFamily("virtman_image_vms", "VMs that use an image.", labels=["image"])
        failed = GaugeMetricFamily(
            "virtman_image_paths_failed",
            "Paths to parents and standbys that do not work.",
            labels=["image"],
        )
        failures = CounterMetricFamily(
            "virtman_image_path_failures",
            "Failures of paths to parents and standbys, since these are the same.",
            labels=["image"],
        )
        window = GaugeMetricFamily(
            "virtman_prefetch_window",
            "Pieces that may be in flight ahead of the VMs of an image.",
            labels=["image"],
        )
        share = GaugeMetricFamily(
            "virtman_prefetch_share_bytes_per_second",
            "What Volt lets this node fetch ahead of an image; none if no cap applies.",
            labels=["image"],
        )
        waiting = GaugeMetricFamily(
            "virtman_image_waiting_seconds",
            "For how long reads of an image have waited for parents.",
            labels=["image"],
        )
        for one in attached:
            name, report = one.info.name, one.report(seen)
            reads.add_metric([name, "hit"], report.hits)
            reads.add_metric([name, "miss"], report.misses)
            sent.add_metric([name], report.sent)
            vms.add_metric([name], len(one.vms))
            failed.add_metric([name], one.failed_paths(seen))
            failures.add_metric([name], one.path_failures(seen))
            waiting.add_metric([name], one.waiting)
            ahead = self.boots.ahead(name)
            window.add_metric([name], ahead.window if ahead else 0)
            if (rate := one.share.rate) is not None:
                share.add_metric([name], rate)
        yield from (reads, sent, vms, failed, failures, waiting, window, share)
        yield from self._boots()
        yield from self._copies({one.info.name for one in attached if one.is_local})

    def _copies(self, local: set[str]) -> Iterator[Metric]:
        there = GaugeMetricFamily(
            "virtman_copy_bytes",
            "Bytes of a copy of a whole image, by what is there and what is wanted in all.",
            labels=["image", "kind"],
        )
        whole = GaugeMetricFamily(
            "virtman_image_local",
            "Whether all of an image is here, so that it needs no parents.",
            labels=["image"],
        )
        held = GaugeMetricFamily(
            "virtman_copy_held_back",
            "Whether a copy comes slowly, as VMs wait for what they read of the image.",
            labels=["image"],
        )
        for copy in self.copying.copies.all():
            found = self.copying.progress(copy.image)
            if found is not None:
                there.add_metric([copy.image, "there"], found.there)
                there.add_metric([copy.image, "wanted"], found.wanted)
                whole.add_metric([copy.image], copy.image in local)
                held.add_metric([copy.image], found.held_back)
        yield from (there, whole, held)

    def _boots(self) -> Iterator[Metric]:
        totals = self.boots.totals
        yield CounterMetricFamily(
            "virtman_prefetch_fetched_bytes",
            "Bytes that were fetched ahead of VMs.",
            totals.fetched,
        )
        yield CounterMetricFamily(
            "virtman_prefetch_used_bytes",
            "Bytes of pieces that were fetched ahead and that VMs then read.",
            totals.used,
        )
        yield CounterMetricFamily(
            "virtman_prefetch_missed_bytes",
            "Bytes of pieces that profiles have, and that VMs read before they came.",
            totals.missed,
        )
        yield CounterMetricFamily(
            "virtman_prefetch_useless",
            "Boots for which nothing more was fetched ahead, as VMs hardly read what came.",
            totals.useless,
        )
        yield CounterMetricFamily(
            "virtman_boots_recorded", "Boots that were recorded.", totals.recorded
        )
        yield GaugeMetricFamily(
            "virtman_prefetch_limit_bytes_per_second",
            "Limit for what is fetched ahead, over all images; 0 for none.",
            self.boots.options.how.cap.rate,
        )
        reads = totals.reads()
        bounds = [*map(str, BOUNDS), "+Inf"]
        yield HistogramMetricFamily(
            "virtman_boot_read_seconds",
            "How long reads of VMs took during their boots.",
            buckets=list(zip(bounds, accumulate(reads.classes), strict=True)),
            sum_value=reads.seconds,
        )


class Metrics:
    """Answers Prometheus.

    :param port: 0 for no answers
    """

    def __init__(self, figures: Figures, ip: str, port: int) -> None:
        self.figures = figures
        self.ip = ip
        self.port = port

    def start(self) -> None:
        """Begin, on a thread of its own."""
        if not self.port:
            return
        registry = CollectorRegistry()
        registry.register(self.figures)
        try:
            self._server, _ = start_http_server(self.port, self.ip, registry)
        except OSError as err:
            # VMs do not depend on it
            LOG.error(
                "no figures for Prometheus: %s port %d: %s; set [metrics] ip and port",
                self.ip,
                self.port,
                err.strerror,
            )
            self.port = 0

    def stop(self) -> None:
        """Answer no more."""
        if self.port:
            self._server.shutdown()
            self._server.server_close()
