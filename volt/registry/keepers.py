"""Which hosts are chosen to copy all of an image, inside a transaction that holds it."""

import logging

from sqlalchemy.orm import Session

from volt.db import copies, hosts
from volt.db.models import ImageRow
from volt.model.copies import choose
from volt.model.names import few

LOG = logging.getLogger(__name__)


def tend(session: Session, image: ImageRow) -> set[str]:
    """Choose hosts for the copies that lack; return who has to hear of it."""
    known = copies.hosts(session, image.name)
    before = {one.host for one in known if one.chosen}
    chosen = choose(known, image.hydrate_copies or 0)
    copies.mark(session, image.name, chosen)
    if new := sorted(chosen - before):
        hosts.note(session, "copy", new, image.name)
        LOG.info("Image %s: to be copied by host %s", image.name, few(new))
    return set(chosen ^ before)
