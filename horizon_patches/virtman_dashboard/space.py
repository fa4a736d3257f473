"""How much room there is for what servers write, as far as Placement tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest
from keystoneauth1.exceptions import ClientException
from openstack_dashboard.api import base, placement

LOG = logging.getLogger(__name__)

RESOURCE = "DISK_GB"
"""What compute nodes report the space of their exception stores as."""

_PATH = f"/allocation_candidates?resources={RESOURCE}:1&required=CUSTOM_VIRTMAN"
_VERSION = "placement 1.17"
"""Since when a request can name a trait."""


def free(request: HttpRequest) -> int | None:
    """Return the free GiB of all compute nodes together, or None if that is not known.

    Placement tells administrators only, unless its policy says otherwise.
    """
    if not base.is_service_enabled(request, "placement"):
        return None
    try:
        url = base.url_for(request, "placement").rstrip("/") + _PATH
        session = placement.make_adapter(request).session
        _, found = placement.Adapter(session, api_version=_VERSION).get(url)
    except ClientException as err:
        LOG.debug("placement does not tell user %s of %s: %s", request.user.id, RESOURCE, err)
        return None
    return total(found["provider_summaries"])


def total(summaries: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Add up what the providers have left; None if there is none that has room."""
    rooms = [
        one["resources"][RESOURCE] for one in summaries.values() if RESOURCE in one["resources"]
    ]
    return sum(room["capacity"] - room["used"] for room in rooms) if rooms else None
