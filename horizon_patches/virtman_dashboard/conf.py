"""The setting VIRTMAN of Horizon's, a dictionary; all of its keys may be left out."""

from dataclasses import dataclass, fields
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


@dataclass(frozen=True)
class Settings:
    """What an operator can set.

    :ivar enabled: False takes everything of VirtMan out of the dashboard
    :ivar endpoint: URL of Volt; None for that of service type ``virtman`` in Keystone's catalog
    :ivar token_file: file with a token of Volt's, role *reader*; None to show Volt the token of
        the user, which it takes if it asks Keystone
    :ivar cacert: file with the authorities that may have signed Volt's certificate; None for
        those that Horizon trusts
    :ivar timeout: seconds within which Volt must answer. Lower: pages are quicker while Volt is
        down. Higher: slow networks work
    :ivar volume_type: that of ``[virtman] volume_type`` in nova.conf
    """

    enabled: bool = True
    endpoint: str | None = None
    token_file: str | None = None
    cacert: str | None = None
    timeout: float = 5.0
    volume_type: str = "virtman"

    def token(self) -> str | None:
        """Return the token of the file, which may be replaced at any time."""
        return Path(self.token_file).read_text().strip() if self.token_file else None


def load() -> Settings:
    """Return the settings as they are now; a key that does not exist is an error."""
    given = getattr(settings, "VIRTMAN", {})
    unknown = sorted(given.keys() - {one.name for one in fields(Settings)})
    if unknown:
        raise ImproperlyConfigured(f"VIRTMAN has no {', '.join(unknown)}")
    return Settings(**given)
