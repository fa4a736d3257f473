"""Has as many hosts copy all of an image as are wanted, whoever comes, goes or gives a copy back.

Nobody tells when one is needed: what is, is compared with what shall be, again and again. So
nothing is missed when a worker dies.
"""

from sqlalchemy import Engine
from sqlalchemy.orm import sessionmaker

from volt.db import copies, forests
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import ImageRow
from volt.model.copies import Copy, choose, lacks
from volt.registry import images, keepers
from volt.registry.batches import Turns


class Copies:
    """The use cases of whole copies; safe to share between threads."""

    def __init__(self, engine: Engine, turns: Turns[str]) -> None:
        """Take turns with all who write to images in this process, by the image's name."""
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._turns = turns

    @retried
    def index(self, image: str) -> list[Copy]:
        """Return the copies of an image, whole or not, by host; raises ImageUnknown."""
        with self._reading.begin() as session:
            images.known(session, image)
            return copies.of_image(session, image)

    def tend(self) -> None:
        """Choose hosts wherever copies lack."""
        for image in self._lacking():
            self._choose(image)

    @retried
    def _lacking(self) -> list[str]:
        """Return the images for which others can be chosen."""
        found = []
        with self._reading.begin() as session:
            for image, number in copies.wanted(session).items():
                known = copies.keepers(session, image)
                if lacks(known, number):
                    chosen = {one.host for one in known if one.chosen}
                    if choose(copies.hosts(session, image), number) != chosen:
                        found.append(image)
        return found

    @retried
    def _choose(self, image: str) -> None:
        with self._turns.of(image), self._writing.begin() as session:
            row = session.get(ImageRow, image, with_for_update=True)
            if row is None or row.hydrate_copies is None:
                return
            changed = keepers.tend(session, row)
            if changed:
                row.generation += 1
                forests.renew(session, {row: changed})
