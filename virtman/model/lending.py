"""Through which devices an image reads what others on this node have too (ACStor, 3.5).

::

    image of V1            stripes and cache of V2
      cache, stripe           cache
        │                       │
      lent ── runs of V1 ─── mixture      linear: who has what is told by the basis of V2
                               mixed      verified by the hashes of V2
                               image      mixed first, then V2's own cache and stripe

What V1 lends is above its cache, and what V2 keeps is below its mixture: nothing is cached twice.
Whatever becomes of V1, the kernel reads V2 from its own stripes then: wrong bytes are errors of
*mixed*, and so is what V1 has no answer for. That is why an image that lends does not queue
reads where its paths come together. They fail there, and wait in device *image*, so that its own
VMs wait as ever, and who borrows goes on elsewhere.

What is lent is what the image itself has: never what it borrows. So there is no circle, and a read
goes through one other image at most.
"""

from __future__ import annotations

from dataclasses import replace

from virtman.model import plan
from virtman.model.naming import Device
from virtman.model.sizes import padded
from virtman.model.wanted import Wanted


def lent(wanted: Wanted, own: tuple[Device, ...]) -> plan.Plan:
    """Return what others read of an image, if it lends.

    :param own: what the image lies on but for what it borrows, best first
    """
    if not wanted.lends:
        return ()
    return (plan.Lent(device_of(wanted.image), padded(wanted.size), own),)


def mixed(wanted: Wanted) -> tuple[plan.Mixture, plan.Verity]:
    """Return what an image reads of its lenders and from itself, and that verified."""
    mixture, top = Device(wanted.image, "mixture"), Device(wanted.image, "mixed")
    own = Device(wanted.image, "cache" if wanted.kept is None else "kept")
    below = (own, *map(device_of, wanted.lenders))
    length = padded(wanted.size)
    return (
        plan.Mixture(mixture, length, below, wanted.basis),
        plan.Verity(top, length, (mixture, Device(wanted.image, "hashes")), wanted.tree),
    )


def device_of(image: str) -> Device:
    """Return what others read of an image."""
    return Device(image, "lent")


def without_queues(wanted: Wanted, steps: plan.Plan) -> plan.Plan:
    """Return the steps of an image; one that lends does not have reads wait for parents."""
    if not wanted.lends:
        return steps
    return tuple(
        replace(step, queues=False) if isinstance(step, plan.Multipath) else step for step in steps
    )
