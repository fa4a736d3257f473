"""VMs go first: who copies an image hears whether VMs of any host wait for what they read of it.

Links to one host are shared by its children, and copies of an image go down the same trees as what
VMs read of it. So a host that copies it holds up VMs of others, and cannot see that itself.
"""

from collections.abc import Mapping

from sqlalchemy.orm import Session

from volt.db import demands, hosts
from volt.db.hosts import Held
from volt.model.hosts import Report


def hear(
    session: Session, held: Mapping[str, Held], reports: Mapping[str, Report]
) -> dict[str, tuple[str, ...]]:
    """Note the demands of these hosts, whose rows are held.

    Hosts whose VMs do not wait, and did not, and that fetch nothing ahead, cost nothing.

    :returns: of each that fetches ahead in images, those of which VMs wait for reads
    """
    said = {
        (host, image)
        for host, report in reports.items()
        for image, one in report.images.items()
        if one.waits
    }
    demanding = {host for host, _ in said}
    before = {name for name, one in held.items() if one.demanding}
    known = demands.of(session, before) if before else set()
    demands.forget(session, known - said)
    demands.add(session, said - known)
    hosts.demand(session, demanding - before, True)
    hosts.demand(session, before - demanding, False)
    ahead = {
        host: [image for image, one in report.images.items() if one.ahead]
        for host, report in reports.items()
    }
    asked = {image for images in ahead.values() for image in images}
    read = demands.images(session, asked) if asked else set()
    return {host: tuple(sorted(read.intersection(images))) for host, images in ahead.items()}
