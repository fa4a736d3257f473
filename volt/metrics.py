"""What Volt counts about itself, and how the numbers of all its workers become one answer.

Workers are killed and started again, and each request may meet another one, so their counts
lie in files of a folder that ``volt-api`` makes (the multiprocess mode of prometheus_client):
counters of a dead worker stay, its gauges go. Counting in the database instead would cost
every request a write. Where several Volts share a database, each answers with its own
counts. What is true of the database is asked of it at each scrape.
"""

import os
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from volt.model.figures import Figures
from volt.model.placements import State

# prometheus_client decides when it is imported, so this does too.
FOLDER = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
_OWN = CollectorRegistry()

REQUESTS = Histogram(
    "volt_request_seconds",
    "Time to answer a request, by route and HTTP status.",
    ["method", "route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
    registry=_OWN,
)
JOINS = Counter("volt_joins", "Hosts that got a place in an image's trees.", registry=_OWN)
EXPIRIES = Counter("volt_expiries", "Silent hosts that were expired.", registry=_OWN)
PARENT_REPORTS = Counter(
    "volt_parent_reports",
    "Reports of hosts about their parents, by Volt's verdict.",
    ["verdict"],
    registry=_OWN,
)
DATABASE_RETRIES = Counter(
    "volt_database_retries", "Transactions that were repeated after an error.", registry=_OWN
)
LONG_POLLS = Gauge(
    "volt_long_polls",
    "Requests that wait for a new placement.",
    multiprocess_mode="livesum",
    registry=_OWN,
)
CLOCK_HOLDER = Gauge(
    "volt_clock_holder",
    "1 if a worker of this Volt counts the time and expires hosts.",
    multiprocess_mode="livesum",
    registry=_OWN,
)
HELD = Gauge(
    "volt_hosts_held",
    "Silent hosts that are not expired, as most fell silent at once.",
    multiprocess_mode="livesum",
    registry=_OWN,
)


def forget_worker(process: int) -> None:
    """Drop the gauges of a worker that ended."""
    if FOLDER is not None:
        mark_process_dead(process, FOLDER)  # type: ignore[no-untyped-call]


def text(figures: Figures) -> bytes:
    """Return everything in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_State(figures))
    if FOLDER is None:
        return generate_latest(registry) + generate_latest(_OWN)
    MultiProcessCollector(registry, FOLDER)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


class _State(Collector):
    """What the database says at this moment."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        now = self._figures
        images = sorted(now.generations)
        yield _gauge("volt_images", "Images.", [], [([], len(images))])
        hosts = {"known": now.hosts, "draining": now.draining, "overloaded": now.overloaded}
        yield _gauge(
            "volt_hosts",
            "Hosts: all that are known, and those of them that get no new children.",
            ["condition"],
            (([condition], number) for condition, number in hosts.items()),
        )
        yield _gauge(
            "volt_image_hosts",
            "Hosts that hold a place in an image's trees, by state.",
            ["image", "state"],
            (
                ([image, state.value], now.places.get((image, state), 0))
                for image in images
                for state in State
            ),
        )
        yield _gauge(
            "volt_tree_depth",
            "Hosts on the longest way from the source to a host.",
            ["image", "stripe"],
            (
                ([image, str(stripe)], depth)
                for (image, stripe), depth in sorted(now.depths.items())
            ),
        )
        yield _gauge(
            "volt_image_generation",
            "Changes of an image's trees so far, and times that hosts were asked to warm it.",
            ["image"],
            (([image], now.generations[image]) for image in images),
        )
        yield _gauge(
            "volt_image_holds",
            "Hosts with disks that need an image, by whether they are heard or have expired.",
            ["image", "host"],
            (
                ([image, state], number)
                for image, (needing, gone) in sorted(now.holds.items())
                for state, number in (("heard", needing - gone), ("gone", gone))
            ),
        )
        yield _gauge(
            "volt_image_reads",
            "Reads of hosts' caches, as hosts said last, by whether the cache could answer.",
            ["image", "result"],
            (
                ([image, result], number)
                for image, numbers in sorted(now.reads.items())
                for result, number in zip(("hit", "miss"), numbers, strict=True)
            ),
        )
        yield from self._copies()
        yield _gauge(
            "volt_cap_bytes_per_second",
            "What may be fetched ahead of VMs, of an image, by a rack's hosts or by a host.",
            ["kind", "name"],
            (([cap.kind, cap.name], cap.rate) for cap in now.caps),
        )
        yield _gauge(
            "volt_cap_granted_bytes_per_second",
            "What hosts that fetch ahead were granted of a cap.",
            ["kind", "name"],
            (([cap.kind, cap.name], cap.granted) for cap in now.caps),
        )

    def _copies(self) -> Iterator[Metric]:
        found = sorted(self._figures.copies.items())
        yield _gauge(
            "volt_image_copies",
            "Hosts that have all of an image; with one, it is independent of its source.",
            ["image"],
            (([image], copies.whole) for image, copies in found),
        )
        yield _gauge(
            "volt_image_stripe_copies",
            "Hosts that have all of a stripe of an image.",
            ["image", "stripe"],
            (
                ([image, str(stripe)], number)
                for image, copies in found
                for stripe, number in enumerate(copies.stripes)
            ),
        )
        yield _gauge(
            "volt_image_copies_wanted",
            "Whole copies that there shall be of an image, where not all its hosts copy it.",
            ["image"],
            (([image], number) for image, number in sorted(self._figures.wanted.items())),
        )
        yield _gauge(
            "volt_image_homes",
            "Hosts that stand for the source of an image, where that was removed: 1, or 0.",
            ["image"],
            (([image], int(there)) for image, there in sorted(self._figures.sources_gone.items())),
        )


def _gauge(
    name: str, meaning: str, labels: list[str], values: Iterable[tuple[list[str], int]]
) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for given, value in values:
        family.add_metric(given, value)
    return family
