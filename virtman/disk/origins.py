"""Whether what a VM wrote fits the image that has its image's name now."""

from __future__ import annotations

from virtman.errors import ImageRemade
from virtman.model.chain import Instance, Snapshot


class Origins:
    """The origins of the images that have their names now; no store of an earlier one is put on
    them."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def learn(self, image: str, origin: str) -> None:
        """Take to know which image has a name."""
        self._of[image] = origin

    def of(self, image: str) -> str:
        """Return the origin of the image of a name; empty while it is not known."""
        return self._of.get(image, "")

    def fits(self, one: Instance | Snapshot) -> bool:
        """Tell whether a VM or snapshot is of the image that has its image's name now."""
        return not one.origin or self._of.get(one.image, one.origin) == one.origin

    def check(self, one: Instance | Snapshot) -> None:
        """Raise ImageRemade if a VM or snapshot is of an earlier image."""
        if self.fits(one):
            return
        what = f"VM {one.vm}" if isinstance(one, Instance) else f"snapshot {one.name}"
        raise ImageRemade(
            f"{what} is of an image {one.image} that was deleted; another one has that name now. "
            "What was written is kept: give the earlier image its name back in Volt, or destroy "
            f"{what}"
        )
