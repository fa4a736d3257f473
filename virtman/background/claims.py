"""Images with which somebody is busy, so that nobody else begins anything there."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Claims:
    """Those of one who does things to images.

    :param lock: guards them, and what its owner does only to images that nobody has claimed
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._given_back = threading.Condition(lock)
        self._images: set[str] = set()

    def __contains__(self, image: str) -> bool:
        """Tell whether somebody has an image; the caller holds the lock."""
        return image in self._images

    @contextlib.contextmanager
    def claimed(self, image: str) -> Iterator[None]:
        """Have an image, once nobody else has; the lock is not held meanwhile."""
        with self._given_back:
            self._given_back.wait_for(lambda: image not in self._images)
            self._images.add(image)
        try:
            yield
        finally:
            with self._given_back:
                self._images.discard(image)
                self._given_back.notify_all()
