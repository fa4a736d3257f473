"""Where the images of a node's disks come from: their names say it."""

from __future__ import annotations

from collections.abc import Sequence

from virtman.openstack import wanted
from virtman.openstack.disks import Images


class Sources:
    """Images of Glance, and those that golden volumes of Cinder are.

    :param golden: used for the latter, and only where there are some
    :param is_golden_used: whether what this node holds is to be asked of Cinder
    """

    def __init__(self, glance: wanted.WantedImages, golden: Images, is_golden_used: bool) -> None:
        self.glance = glance
        self.golden = golden
        self.is_golden_used = is_golden_used

    def hold(self, image: str, volume: int) -> None:
        """Have an image that stays until this node lets go of it. Repeatable."""
        self._of(image).hold(image, volume)

    def share(self, image: str, host: str) -> None:
        """Have another node hold what this node holds. Repeatable."""
        self._of(image).share(image, host)

    def release(self, image: str) -> None:
        """Let go of an image. Repeatable."""
        self._of(image).release(image)

    def held(self) -> Sequence[str]:
        """Return the images that this node holds."""
        return self.golden.held() if self.is_golden_used else ()

    def _of(self, image: str) -> Images:
        return self.glance if wanted.is_of_glance(image) else self.golden
