"""Whether a user is offered to boot servers through VirtMan, and if not, why not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Any

from django.http import HttpRequest
from openstack_dashboard import policy
from openstack_dashboard.api import cinder

from virtman_dashboard import conf, space, volt

LOG = logging.getLogger(__name__)


def offer(request: HttpRequest) -> dict[str, Any]:
    """Return the volume type by which servers are VirtMan's, or the reason that there is none.

    With it comes the free space for what they write, in GiB, or None.
    """
    settings = conf.load()
    reason = obstacle(
        settings,
        lambda: policy.check((("virtman", "virtman:launch"),), request),
        lambda: [kind.name for kind in cinder.volume_type_list(request)],
        lambda: _answers(request),
    )
    if reason:
        LOG.info("user %s is not offered VirtMan: %s", request.user.id, reason)
        return {"offered": False, "reason": reason}
    return {"offered": True, "volume_type": settings.volume_type, "free": space.free(request)}


def obstacle(
    settings: conf.Settings,
    may: Callable[[], bool],
    types: Callable[[], Collection[str]],
    answers: Callable[[], bool],
) -> str | None:
    """Return the first thing in the way, in a word that the operator's guide explains.

    :param may: whether the policy allows it
    :param types: volume types that Cinder shows to the user; private ones only to who may use them
    :param answers: whether Volt does
    """
    if not settings.enabled:
        return "disabled"
    if not may():
        return "policy"
    if settings.volume_type not in types():
        return "volume_type"
    return None if answers() else "volt"


def _answers(request: HttpRequest) -> bool:
    try:
        return volt.client(request).answers()
    except volt.VoltError as err:
        LOG.warning("%s", err)
        return False
