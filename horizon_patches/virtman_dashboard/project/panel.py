"""Where users find the panel."""

import horizon
from django.utils.translation import gettext_lazy as _

from virtman_dashboard import conf


class Images(horizon.Panel):
    """Snapshots of the project from which servers boot through VirtMan."""

    name = _("VirtMan Images")
    slug = "virtman"
    permissions = (("openstack.services.volume", "openstack.services.volumev3",
                    "openstack.services.block-storage"),)  # fmt: skip
    policy_rules = (("virtman", "virtman:project"),)

    def allowed(self, context):
        """Tell whether the user of a request sees the panel."""
        return conf.load().enabled and super().allowed(context)
