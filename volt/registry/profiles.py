"""What becomes of the boot profiles of images: which pieces of an image a workload reads first.

To Volt they are bytes. Each verb is one transaction, under the lock of the image that
``volt.registry.images`` tells of: of two agents that store at once, one finds what the other did.
"""

import logging
from datetime import datetime
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from volt.db import profiles
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import ImageRow
from volt.db.profiles import ProfileRow
from volt.errors import (
    ProfileForeign,
    ProfileStale,
    ProfileUnbound,
    ProfileUnknown,
    TooManyProfiles,
)
from volt.model.profiles import Condition, NewProfile, Profile, Revision
from volt.registry.batches import Turns
from volt.registry.images import known

LOG = logging.getLogger(__name__)

WORKLOADS: Final = 32
"""Workloads of an image at most: each placement names them all."""

ALWAYS: Final = Condition()


class Profiles:
    """The use cases of profiles; safe to share between threads."""

    def __init__(self, engine: Engine, turns: Turns[str]) -> None:
        """Take turns with all who write to images in this process, by the image's name."""
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._turns = turns

    @retried
    def index(self, image: str) -> list[Profile]:
        """Return the newest profile of each workload, by workload; raises ImageUnknown."""
        with self._reading.begin() as session:
            known(session, image)
            return [_profile(row) for row in profiles.newest(session, image)]

    @retried
    def history(self, image: str, workload: str) -> list[Revision]:
        """Return the revisions that are kept, the newest first.

        Raises ImageUnknown, ProfileUnknown.
        """
        with self._reading.begin() as session:
            known(session, image)
            rows = profiles.history(session, image, workload)
            if not rows:
                raise _none(image, workload)
            return [Revision(row.revision, row.size, row.stored_at, row.host) for row in rows]

    @retried
    def show(self, image: str, workload: str, revision: int | None = None) -> tuple[bytes, str]:
        """Return the bytes of a revision and their tag; the newest unless told which.

        Raises ImageUnknown, ProfileUnknown.
        """
        with self._reading.begin() as session:
            known(session, image)
            row = profiles.find(session, image, workload, revision)
            if row is None:
                raise _none(image, workload, revision)
            return row.content, row.tag

    @retried
    def store(
        self,
        image: str,
        workload: str,
        new: NewProfile,
        now: datetime,
        condition: Condition = ALWAYS,
        host: str | None = None,
    ) -> tuple[Profile, bool]:
        """Store a profile as the newest revision; return it, and whether it is the only one.

        Nothing happens if the newest revision has these bytes already. ``host`` is who stores
        it. Raises ImageUnknown, ProfileUnbound, ProfileForeign, ProfileStale, TooManyProfiles.
        """
        with self._turns.of(image), self._writing.begin() as session:
            row = known(session, image, lock=True)
            _check_bound(row, new)
            present = _present(session, image, workload)
            if not condition.holds(None if present is None else present.tag, new.tag):
                raise _stale(image, workload, present)
            if present is not None and present.tag == new.tag:
                return _profile(present), False
            made = _add(session, row, workload, new, now, host)
        LOG.info("Profile %s of image %s is at revision %d", workload, image, made.revision)
        return made, present is None

    @retried
    def remove(self, image: str, workload: str) -> bool:
        """Forget all revisions of a workload's profile; repeatable. Return if there were any."""
        with self._turns.of(image), self._writing.begin() as session:
            row = session.get(ImageRow, image, with_for_update={"key_share": True})
            if row is None or not profiles.remove(session, image, workload):
                return False
            row.profiles = {
                name: revision for name, revision in row.profiles.items() if name != workload
            }
        LOG.info("Profile %s of image %s removed", workload, image)
        return True


def _check_bound(image: ImageRow, new: NewProfile) -> None:
    if image.root_hash is None:
        raise ProfileUnbound(
            f"image {image.name} has no hash tree, so nothing would bind a profile to its data: "
            "delete the image and add it with a hash tree"
        )
    if image.root_hash != new.root_hash:
        raise ProfileForeign(
            f"the profile is for root hash {new.root_hash}, image {image.name} has "
            f"{image.root_hash}: make a profile of this image"
        )


def _present(session: Session, image: str, workload: str) -> ProfileRow | None:
    return next(iter(profiles.history(session, image, workload)), None)


def _add(
    session: Session,
    image: ImageRow,
    workload: str,
    new: NewProfile,
    now: datetime,
    host: str | None,
) -> Profile:
    """Store the next revision, and note it with the image."""
    if len(image.profiles.keys() | {workload}) > WORKLOADS:
        raise TooManyProfiles(
            f"image {image.name} has profiles of {WORKLOADS} workloads already: "
            "remove one that nobody needs"
        )
    number = {workload: image.revisions.get(workload, 0) + 1}
    row = ProfileRow(
        image=image.name,
        workload=workload,
        revision=number[workload],
        tag=new.tag,
        size=len(new.content),
        content=new.content,
        stored_at=now,
        host=host,
    )
    image.profiles = image.profiles | number
    image.revisions = image.revisions | number
    profiles.add(session, row)
    return _profile(row)


def _profile(row: ProfileRow) -> Profile:
    return Profile(row.workload, row.revision, row.size, row.stored_at)


def _stale(image: str, workload: str, present: ProfileRow | None) -> ProfileStale:
    if present is None:
        return ProfileStale(
            f"image {image} has no profile {workload} any more: "
            "store yours with If-None-Match: * instead of If-Match"
        )
    return ProfileStale(
        f"profile {workload} of image {image} is at revision {present.revision}, which is not the "
        "one that the request expects: fetch it, combine yours with it, and store the result "
        "with its ETag in If-Match"
    )


def _none(image: str, workload: str, revision: int | None = None) -> ProfileUnknown:
    if revision is None:
        return ProfileUnknown(f"image {image} has no profile {workload}: no agent has stored one")
    return ProfileUnknown(
        f"profile {workload} of image {image} has no revision {revision}: "
        f"only the last {profiles.KEPT} are kept, its history lists them"
    )
