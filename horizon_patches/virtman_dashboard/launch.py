"""Whether a user is offered to boot servers through VirtMan, and if not, why not."""

from __future__ import annotations

import logging
from typing import Any

from django.http import HttpRequest
from openstack_dashboard import policy
from openstack_dashboard.api import cinder

from virtman_dashboard import conf, volt

LOG = logging.getLogger(__name__)


def offer(request: HttpRequest) -> dict[str, Any]:
    """Return the volume type by which servers are VirtMan's, or the reason that there is none.

    Reasons are words of a fixed list, which the operator's guide explains.
    """
    settings = conf.load()
    reason = _obstacle(request, settings)
    if reason:
        LOG.info("user %s is not offered VirtMan: %s", request.user.id, reason)
        return {"offered": False, "reason": reason}
    return {"offered": True, "volume_type": settings.volume_type}


def _obstacle(request: HttpRequest, settings: conf.Settings) -> str | None:
    if not settings.enabled:
        return "disabled"
    if not policy.check((("virtman", "virtman:launch"),), request):
        return "policy"
    # Cinder shows a private type only to projects that may use it.
    if all(kind.name != settings.volume_type for kind in cinder.volume_type_list(request)):
        return "volume_type"
    try:
        return None if volt.client(request).answers() else "volt"
    except volt.VoltError:
        return "volt"
