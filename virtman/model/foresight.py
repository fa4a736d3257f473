"""Which pieces are fetched ahead: those that VMs will read, by a profile and a policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from virtman.model.clusters import clusters
from virtman.model.prediction import Coming, Prediction
from virtman.model.prefetch_order import Policy
from virtman.model.profile import Profile


class Foresight:
    """What VMs will read.

    :ivar follows: whether that depends on what they read
    """

    def __init__(self, profile: Profile, policy: Policy) -> None:
        self.follows = policy is Policy.STREAM
        self._wanted = () if self.follows else profile.wanted()
        self._bands = (
            ()
            if self.follows
            else tuple(
                (one.band * profile.band_ms / 1000, len(one.pieces))
                for one in profile.groups
                if profile.is_wanted(one)
            )
        )
        self._prediction = Prediction(clusters(profile.timed() if self.follows else ()))

    def begin(self) -> Sequence[int]:
        """Return the pieces to fetch before VMs have read anything, soonest first."""
        return _pieces(self._prediction.begin()) if self.follows else self._wanted

    def demands(self) -> Sequence[tuple[float, int]]:
        """Return how many of these pieces are read from which second on, soonest first."""
        if not self.follows:
            return self._bands
        return [(one.after_s, len(one.cluster.pieces)) for one in self._prediction.begin()]

    def after(self, read: Collection[int]) -> Sequence[int]:
        """Return the other pieces to fetch once VMs read some, soonest first."""
        coming = _pieces(self._prediction.after(*read))
        return tuple(piece for piece in coming if piece not in read)


def _pieces(coming: Iterable[Coming]) -> Sequence[int]:
    return tuple(piece for one in coming for piece in one.cluster.pieces)
