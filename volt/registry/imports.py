"""How images come about that hosts want and Volt does not know yet.

A host that waits for an image says so with its heartbeats: it is a hold without a disk. Importers,
services beside the places where images are kept, look for what is wanted, and one of them makes
it: it says so here, again and again, until it makes the image known. One that falls silent has
given it up, and any other may take over.
"""

import logging

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from volt.db import hosts, imports
from volt.db.engine import for_reading, for_writing, retried
from volt.db.imports import ImportRow
from volt.db.models import ImageRow
from volt.errors import ImageExists, ImportTaken, ImportUnknown
from volt.model.imports import Import, Importing, Told

LOG = logging.getLogger(__name__)

LEASE = 30
"""Ticks for which an importer may be silent about what it makes."""

AGAIN = 60
"""Ticks after which an image that could not be made is wanted again, if hosts wait for it."""

_REMEMBERED = 24 * 3600
"""Ticks for which it is remembered why an image could not be made."""


class Imports:
    """The use cases of imports; safe to share between threads."""

    def __init__(self, engine: Engine) -> None:
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)

    @retried
    def index(self) -> list[Import]:
        """Return all images that hosts wait for, or that importers make; by name."""
        with self._reading.begin() as session:
            return _shown(session)

    @retried
    def show(self, image: str) -> Import:
        """Return how far an image is; raises ImportUnknown."""
        with self._reading.begin() as session:
            for one in _shown(session, image):
                return one
        raise ImportUnknown(f"no host waits for image {image}, and nobody makes it")

    @retried
    def tell(self, image: str, told: Told) -> Import:
        """Keep what an importer says of an image that it makes, or begins to make.

        Raises ImportTaken while another one makes it, and ImageExists if it is known already.
        """
        with self._writing.begin() as session:
            now = hosts.tick(session)
            imports.prune(session, now - _REMEMBERED)
            row = imports.find(session, image)
            if session.get(ImageRow, image) is not None:
                raise ImageExists(f"image {image} is known already: nobody has to make it")
            if row is None:
                row = ImportRow(image=image)
                session.add(row)
            elif row.importer != told.importer and _is_made(row, now):
                raise ImportTaken(f"image {image} is made by {row.importer} just now")
            row.importer, row.state, row.detail = told.importer, told.state, told.detail
            row.done, row.total, row.seen = told.done, told.total, now
            session.flush()
            (found,) = _shown(session, image)
        if told.state == Importing.FAILED:
            LOG.warning("Image %s cannot be made: %s", image, told.detail)
        return found

    @retried
    def retry(self, image: str) -> None:
        """Forget what was said of an image: who wants it has it tried anew. Repeatable."""
        with self._writing.begin() as session:
            imports.forget(session, image)


def _is_made(row: ImportRow, now: int) -> bool:
    """Tell whether an importer is about it."""
    return row.state == Importing.RUNNING and now - row.seen <= LEASE


def _shown(session: Session, image: str | None = None) -> list[Import]:
    now = hosts.tick(session)
    return [
        Import(
            name,
            _state(row, waiting, now),
            row.importer if row else None,
            row.done if row else 0,
            row.total if row else 0,
            row.detail if row else "",
            waiting,
            now - row.seen if row else None,
        )
        for name, row, waiting in imports.index(session, image)
    ]


def _state(row: ImportRow | None, waiting: int, now: int) -> Importing:
    """Return the state that others see: what has to be made, by whoever comes first, is wanted."""
    if row is None:
        return Importing.WANTED
    has_failed = row.state == Importing.FAILED
    rests = has_failed and (not waiting or now - row.seen <= AGAIN)
    return Importing(row.state) if rests or _is_made(row, now) else Importing.WANTED
