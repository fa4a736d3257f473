"""Where administrators find the panel."""

import horizon
from django.utils.translation import gettext_lazy as _

from virtman_dashboard import conf


class VirtMan(horizon.Panel):
    """Images, trees, hosts and their health."""

    name = _("VirtMan")
    slug = "virtman"
    policy_rules = (("virtman", "virtman:overview"),)

    def allowed(self, context):
        """Tell whether the user of a request sees the panel."""
        return conf.load().enabled and super().allowed(context)
