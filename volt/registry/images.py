"""What becomes of an image: its record, its trees as a whole, and the secret of its hosts.

Each verb is one transaction. A writer holds the database (SQLite) or its image's row (others)
from its first read to its commit, so that two changes never choose the same slot. Rows are always
locked in this order: the turn to give places, images by name, hosts by name, placements.
"""

import logging
from collections.abc import Collection
from dataclasses import fields, replace
from datetime import datetime

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session, sessionmaker

from volt.db import caps, copies, counts, forests, holds, hosts, imports, views
from volt.db.any_of import among
from volt.db.engine import for_reading, for_writing, retried
from volt.db.models import HostRow, ImageRow, PlacementRow
from volt.errors import (
    BasisForeign,
    BasisUnknown,
    HashesUnknown,
    HostUnknown,
    ImageExists,
    ImageInUse,
    ImageLastCopy,
    ImageNotWhole,
    ImageSizeInvalid,
    ImageUnknown,
    LayersTooMany,
    NotMaker,
)
from volt.model import suspended
from volt.model.basis import NewBasis
from volt.model.caps import CapKind
from volt.model.figures import Figures
from volt.model.images import CopyPolicy, Image, Layer, NewImage
from volt.model.names import few
from volt.model.placements import Candidate, Trees
from volt.placement.part import Change
from volt.registry import keepers, placing, source
from volt.registry.batches import Turns
from volt.transport import RENEWED, columns, new_secret

LOG = logging.getLogger(__name__)

_KNOWN = select(ImageRow.name).where(among(ImageRow.name, "names"))  # type: ignore[arg-type]
_HELD = (
    select(ImageRow)
    .where(among(ImageRow.name, "names"))  # type: ignore[arg-type]
    .order_by(ImageRow.name)
    .with_for_update(key_share=True)
)

LAYERS = 3
"""Of a chain at most: each is looked up by each read."""


class Images:
    """The use cases of images; safe to share between threads."""

    def __init__(self, engine: Engine, turns: Turns[str], source_timeout: float) -> None:
        """Wait ``source_timeout`` seconds for the source of a new image to answer.

        ``turns`` are those of all who write to images in this process, by the image's name.
        """
        self._reading = sessionmaker(for_reading(engine), expire_on_commit=False)
        self._writing = sessionmaker(for_writing(engine), expire_on_commit=False)
        self._turns = turns
        self._source_timeout = source_timeout

    def create(self, new: NewImage, now: datetime, keeps_proof: bool = False) -> tuple[Image, bool]:
        """Store an image; return it and whether it is new.

        The source's secret may differ from the stored one: it is the new one then, unless the
        image ``keeps_proof``, as its caller cannot tell the secret. So is its basis, if there is
        one. Raises ImageExists for other content under the name, SourceUnreachable; for a layer
        ImageUnknown, LayersTooMany and ImageSizeInvalid, if it cannot lie on its parent; and
        ImageUnknown and BasisForeign if it cannot be based on what it says.
        """
        present = self._find_same(new, keeps_proof)
        if present is not None:
            return present, False
        source.check_answers(new.source, self._source_timeout)
        return self._store(new, now, keeps_proof)

    @retried
    def index(self, after: str = "", limit: int | None = None) -> list[Image]:
        """Return up to ``limit`` images by name, from the one after that name on."""
        with self._reading.begin() as session:
            return views.images(session, after=after, limit=limit)

    @retried
    def show(self, name: str) -> Image:
        """Return an image; raises ImageUnknown."""
        with self._reading.begin() as session:
            known(session, name)
            return views.images(session, name)[0]

    @retried
    def upper_hashes(self, name: str) -> bytes:
        """Return the image's hashes above the leaves; raises ImageUnknown, HashesUnknown."""
        with self._reading.begin() as session:
            hashes = known(session, name).upper_hashes
        if hashes is None:
            raise HashesUnknown(f"image {name} has no hash tree: it was registered without one")
        return hashes

    @retried
    def basis(self, name: str) -> bytes:
        """Return what the image has in common with others; raises ImageUnknown, BasisUnknown."""
        with self._reading.begin() as session:
            found = known(session, name).basis
        if found is None:
            raise BasisUnknown(f"image {name} is based on no other")
        return found

    @retried
    def delete(self, name: str, maker: str | None = None) -> None:
        """Forget an image, for a host only a layer that it keeps.

        Raises ImageUnknown, ImageInUse, NotMaker.
        """
        with self._turns.of(name), self._writing.begin() as session:
            row = known(session, name, lock=True)
            _check_maker(row, maker)
            children = views.children(session, name)
            if children:
                raise ImageInUse(
                    f"image {name} is the parent of layer {few(children)}: remove that first"
                )
            count = _places(session, name)
            if count:
                raise ImageInUse(f"image {name} is in use by {count} hosts: remove them first")
            needing = holds.holders(session, name)
            if needing:
                raise ImageInUse(
                    f"image {name} is needed by disks of host {few(needing)}: "
                    f"'volt-manage hold list --image {name}' tells more"
                )
            _delete(session, row)

    @retried
    def withdraw(self, name: str, forced: bool = False, maker: str | None = None) -> Image | None:
        """Have an image's source go; return the image, or None if it is forgotten.

        It is forgotten if no host needs it. Else a host that has all of it stands for the source,
        or, if ``forced``, nobody may. For a host only a layer that it keeps. Raises ImageUnknown,
        ImageLastCopy, NotMaker.
        """
        with self._turns.of(name), self._writing.begin() as session:
            row = known(session, name, lock=True)
            _check_maker(row, maker)
            count = _places(session, name)
            needing = () if count else holds.holders(session, name)
            children = views.children(session, name)
            if not count and not needing and not children:
                _delete(session, row)
                return None
            home = row.home
            place = None if home is None else session.get(PlacementRow, (name, home))
            if place is None or not place.whole:
                home = placing.other_home(session, row)
            if home is None and not forced:
                who = f"{count} hosts" if count else f"disks of host {few(needing)}"
                if not count and not needing:
                    who = f"layer {few(children)}"
                raise ImageLastCopy(
                    f"image {name} is needed by {who}, and no host has all of it: its source is "
                    f"the last copy. Have hosts copy it first ('volt-manage image hydrate {name} "
                    "--copies 2'), or give it up there; --force stops serving it all the same"
                )
            row.source_gone = True
            if row.home != home:
                row.home = home
                placing.renew_all(session, row)
            hosts.note(session, "source_gone", [home], name)
            return views.images(session, name)[0]

    @retried
    def rotate(self, name: str) -> None:
        """Give the image's hosts another secret for each other; raises ImageUnknown."""
        with self._turns.of(name), self._writing.begin() as session:
            row = known(session, name, lock=True)
            row.secret = new_secret()
            placing.renew_all(session, row)
            hosts.note(session, RENEWED, [None], name)
        LOG.info("Image %s has another CHAP secret", name)

    @retried
    def rehome(self, name: str, host: str | None) -> Image:
        """Have a host that has all of the image stand for its source; None: that itself again.

        Raises ImageUnknown, HostUnknown, ImageNotWhole.
        """
        with self._turns.of(name), self._writing.begin() as session:
            row = known(session, name, lock=True)
            if host is not None:
                place = session.get(PlacementRow, (name, host))
                if place is None:
                    raise HostUnknown(f"host {host} has no place in image {name}")
                if not place.whole or not place.in_trees:
                    raise ImageNotWhole(
                        f"host {host} has no whole copy of image {name}: 'virtman image hydrate' "
                        "makes one there"
                    )
            row.source_gone &= host is not None
            if row.home != host:
                row.home = host
                placing.renew_all(session, row)
                hosts.note(session, "rehome", [host], name)
            return views.images(session, name)[0]

    @retried
    def hydrate(self, name: str, how: CopyPolicy | None) -> Image:
        """Have hosts copy all of an image some time after it came to them; None: not any more.

        Copies that are there, or have begun, stay. Raises ImageUnknown, HashesUnknown.
        """
        with self._turns.of(name), self._writing.begin() as session:
            row = known(session, name, lock=True)
            if row.root_hash is None and how is not None:
                raise HashesUnknown(
                    f"image {name} has no hash tree: nothing tells whether a copy is right"
                )
            wanted = (how.after, how.rate, how.copies) if how else (None, None, None)
            if (row.hydrate_after, row.hydrate_rate, row.hydrate_copies) != wanted:
                row.hydrate_after, row.hydrate_rate, row.hydrate_copies = wanted
                session.flush()
                copies.mark(session, name, ())
                keepers.tend(session, row)
                placing.renew_all(session, row)
                hosts.note(session, "hydrate", [None], name)
            return views.images(session, name)[0]

    @retried
    def trees(self, name: str) -> Trees:
        """Return the image's trees; raises ImageUnknown."""
        with self._reading.begin() as session:
            return views.trees(session, known(session, name))

    @retried
    def parents(self, image: str, host: str, limit: int) -> list[Candidate]:
        """Return whom the host could be given as a parent now, best first in each stripe.

        Raises ImageUnknown.
        """
        with self._reading.begin() as session:
            image_row = known(session, image)
            row = session.get(HostRow, host)
            rack = None if row is None else row.rack
            racks = {} if rack is None else {rack: limit}
            part = forests.part(session, image_row, Change(racks=racks, joins=limit))
            return views.candidates(session, image_row, part, host, rack, limit)

    @retried
    def figures(self) -> Figures:
        """Return how much there is of everything."""
        with self._reading.begin() as session:
            return counts.count(session)

    @retried
    def _find_same(self, new: NewImage, keeps_proof: bool) -> Image | None:
        with self._writing.begin() as session:
            return _same(session, new, keeps_proof)

    @retried
    def _store(self, new: NewImage, now: datetime, keeps_proof: bool) -> tuple[Image, bool]:
        with self._writing.begin() as session:
            present = _same(session, new, keeps_proof)
            if present is not None:
                return present, False
            layer = new.layer
            if layer is not None:
                _check_layer(session, new.name, layer)
            if new.basis is not None:
                _check_basis(session, new, new.basis)
            row = ImageRow(
                name=new.name,
                size=new.size,
                shape=new.shape,
                stripes=new.stripes,
                fanout=new.fanout,
                foreign_children=new.foreign_children,
                root_hash=new.root_hash,
                salt=new.salt,
                upper_hashes=new.upper_hashes,
                secret=new_secret(),
                inner=[0] * new.stripes,
                at_source=[0] * new.stripes,
                created_at=now,
                parent=layer and layer.parent,
                disk_size=layer and layer.disk_size,
                maker=layer and layer.maker,
                suspended=layer and layer.suspended and suspended.form(layer.suspended),
                **columns.values(new.source),
            )
            row.source_proof = new.source_proof
            _put_basis(row, new.basis)
            session.add(row)
            imports.forget(session, new.name)
            hosts.note(session, "image_create", [None], new.name)
            session.flush()
            image = views.images(session, new.name)[0]
        LOG.info("Image %s created", new.name)
        return image, True


def known(session: Session, name: str, lock: bool = False) -> ImageRow:
    """Return the image's row; the lock makes its writers take turns where SQLite's does not.

    It lets others refer to the row meanwhile: hosts may begin to wait for a place.
    """
    row = session.get(ImageRow, name, with_for_update={"key_share": True} if lock else None)
    if row is None:
        raise ImageUnknown(f"image {name} is not known: create it with POST /v1/images")
    return row


def known_of(session: Session, names: Collection[str]) -> set[str]:
    """Return those of the names that images have."""
    rows = session.connection().execute(_KNOWN, {"names": sorted(names)})
    return set(rows.scalars())


def held(session: Session, names: Collection[str]) -> dict[str, ImageRow]:
    """Return the rows of those of these images that there are, locked as by ``known``."""
    rows = session.scalars(_HELD, {"names": sorted(names)})
    return {row.name: row for row in rows}


def _places(session: Session, name: str) -> int:
    """Return how many hosts have a place in the image's trees, or are leaving one."""
    query = select(func.count()).select_from(PlacementRow).where(PlacementRow.image == name)
    return session.scalars(query).one()


def _delete(session: Session, row: ImageRow) -> None:
    session.delete(row)
    caps.remove(session, CapKind.IMAGE, row.name)
    hosts.note(session, "image_delete", [None], row.name)
    LOG.info("Image %s deleted", row.name)


def _check_maker(row: ImageRow, maker: str | None) -> None:
    """Raise NotMaker if a host says something about an image that it did not make."""
    if maker is not None and row.maker != maker:
        raise NotMaker(f"image {row.name} is no layer that host {maker} made")


def _check_layer(session: Session, name: str, layer: Layer) -> None:
    """Raise what speaks against a new layer; its parent stays until it is stored."""
    below = known(session, layer.parent, lock=True)
    smallest = below.disk_size or below.size
    if layer.disk_size < smallest:
        raise ImageSizeInvalid(
            f"layer {name} is of a disk of {layer.disk_size} bytes, but its parent "
            f"{layer.parent} has {smallest}"
        )
    depth = 1
    while below.parent is not None:
        depth += 1
        below = known(session, below.parent)
    if depth > LAYERS:
        raise LayersTooMany(
            f"layer {name} would be number {depth} over image {below.name}, and {LAYERS} are the "
            "most: make a new image of the VM's disk instead"
        )


def _check_basis(session: Session, new: NewImage, basis: NewBasis) -> None:
    """Raise what speaks against what an image says that it has in common with others."""
    if basis.others and basis.root_hash != new.root_hash:
        raise BasisForeign(
            f"the basis is for root hash {basis.root_hash}, image {new.name} has {new.root_hash}: "
            "compare this image with the others anew"
        )
    for other in basis.others:
        if other.name == new.name:
            raise BasisForeign(f"image {new.name} cannot be based on itself")
        row = known(session, other.name)
        if row.root_hash != other.root_hash:
            raise BasisForeign(
                f"image {other.name} has another root hash than the one with which image "
                f"{new.name} was compared: compare them anew"
            )
        if _lies_on(session, row, new.name):
            raise BasisForeign(
                f"image {new.name} cannot be based on {other.name}, which is based on it"
            )


def _lies_on(session: Session, row: ImageRow, name: str) -> bool:
    """Tell whether an image is based on another, or on one that is."""
    seen, ahead = {row.name}, [row]
    while ahead:
        for lower in ahead.pop().based_on or ():
            if lower == name:
                return True
            if lower not in seen:
                seen.add(lower)
                below = session.get(ImageRow, lower)
                if below is not None:
                    ahead.append(below)
    return False


def _put_basis(row: ImageRow, basis: NewBasis | None) -> None:
    if basis is not None:
        is_based = bool(basis.others)
        row.basis = basis.content if is_based else None
        row.shared = basis.shared if is_based else None
        row.based_on = [other.name for other in basis.others] if is_based else None


def _same(session: Session, new: NewImage, keeps_proof: bool) -> Image | None:
    """Return the stored image if it has this content; raise ImageExists if it has other."""
    row = session.get(ImageRow, new.name, with_for_update=True)
    if row is None:
        return None
    stored, said = views.without_secret(row), new.without_secret()
    moves = stored != said and _may_move(row, said)
    if moves:
        stored = _moved(stored, said)
    if stored != said:
        raise ImageExists(
            f"image {new.name} exists with another {_differences(stored, said)}: "
            "delete it first or take another name"
        )
    if row.source_gone or moves:
        row.source_gone = False
        row.maker = new.layer.maker if new.layer else None
        for column, value in columns.values(new.source).items():
            setattr(row, column, value)
        placing.renew_all(session, row)
    if new.basis is not None and (row.basis or b"") != new.basis.content:
        _check_basis(session, new, new.basis)
        _put_basis(row, new.basis)
    if not keeps_proof and row.source_proof != new.source_proof:
        row.source_proof = new.source_proof
        placing.renew_all(session, row)
        hosts.note(session, RENEWED, [None], new.name)
    return views.images(session, new.name)[0]


def _may_move(row: ImageRow, said: NewImage) -> bool:
    """Tell whether an image may have another source from now on, if that has the same content.

    It may if its source has gone. A layer may also leave the host that made it, for a storage node.
    """
    if row.root_hash is None:
        return False
    leaves = row.maker is not None and said.layer is not None and said.layer.maker is None
    return row.source_gone or leaves


def _moved(stored: NewImage, said: NewImage) -> NewImage:
    """Return a stored image with the source of the one that is said: the hashes tell the rest."""
    if stored.layer is not None and said.layer is not None:
        stored = replace(stored, layer=replace(stored.layer, maker=said.layer.maker))
    return replace(stored, source=said.source)


def _differences(one: NewImage, other: NewImage) -> str:
    """Return in words what two images differ in."""
    names = [part.name for part in fields(NewImage) if part.compare]
    differing = [name for name in names if getattr(one, name) != getattr(other, name)]
    return " and ".join(differing).replace("_", " ")
