"""Many hosts in one image, as a data centre would have them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from lab.volt import Volt
from volt.model.hosts import ImageReport, Report, Wiring
from volt.model.images import NewImage
from volt.placement.rules import Shape
from volt.transport import Portal

IMAGE = "debian-12"
RACKS = 8
AT_ONCE = 32  # joins, which then share transactions


def now():
    return datetime.now(UTC)


def serve(ground, cleanups, workers=1):
    """Start volt-api on this ground's database; return it and its URL."""
    # The crowd reported once: it shall not be expired.
    options = {"source": {"timeout": 0.5}, "heartbeat": {"expiry": 3600}}
    volt = cleanups.enter_context(Volt(ground.folder, ground.url, workers, options))
    return volt, f"http://{volt.address}:{volt.port}"


def name(number):
    return f"node{number:04d}"


def rack(number):
    return f"rack-{number % RACKS + 1}"


def portal(number):
    return Portal(f"192.0.2.{number % 250}", 3260, "iqn.2003-01.org.example:h", 0)


def create_image(ground, image=IMAGE):
    source = Portal("127.0.0.1", ground.source_port, "iqn.2003-01.org.example:s", 0)
    new = NewImage(image, 8 * 1024**3, Shape.FOREST, 2, 2, source)
    ground.images.create(new, now())


def join(ground, number, image=IMAGE, is_ready=True):
    ground.placements.join(image, name(number), portal(number), Wiring(rack(number)))
    if is_ready:
        confirm(ground, number, image)


def confirm(ground, number, image=IMAGE):
    """Say for the host that it reads as it was told."""
    host = name(number)
    ground.placements.ready(image, host, ground.placements.show(image, host).generation)


def report(ground, number, image=IMAGE, is_overloaded=False):
    """Let the host say that it served so many bytes, of which its cache had most."""
    served = ImageReport(1, number * 3_000_000, 1000 + number * 7, 100 + number % 90)
    ground.hosts.heartbeat(
        name(number), Report({image: served}, 40_000_000, 38_000_000, is_overloaded)
    )


def populate(ground, hosts, image=IMAGE):
    """Create an image with this many hosts; every twentieth is still joining."""
    create_image(ground, image)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        numbers = range(hosts)
        list(pool.map(lambda number: join(ground, number, image, is_ready=False), numbers))
        list(pool.map(lambda number: report(ground, number, image, number % 33 == 5), numbers))
    for number in range(hosts):
        if number % 20 != 7:
            confirm(ground, number, image)
