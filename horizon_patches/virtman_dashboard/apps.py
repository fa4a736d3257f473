"""What Horizon has to know before it serves the first request."""

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings

SERVICE = "virtman"


class VirtManConfig(AppConfig):
    """The plug-in, as Django sees it."""

    name = "virtman_dashboard"

    def ready(self) -> None:
        """Add the policy and the REST views.

        Both are named in settings of Horizon's that an operator may have set as a whole; an entry
        that is there already is left alone.
        """
        defaults = f"{self.path}/policy/virtman.yaml"
        settings.POLICY_FILES.setdefault(SERVICE, "virtman_policy.yaml")
        settings.DEFAULT_POLICY_FILES.setdefault(SERVICE, defaults)
        import_module("virtman_dashboard.rest")  # its views register themselves
