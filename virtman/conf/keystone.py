"""Options of the account by which Volt knows this host where it asks Keystone."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "keystone"
OPTS = [
    cfg.StrOpt(
        "auth_type",
        default="",
        help="How the agent logs in to Keystone, where that tells Volt who asks: 'password', "
        "'v3applicationcredential' or another plugin of keystoneauth, whose options (auth_url, "
        "username, password and so on) belong into this group too. The user is named 'virtman-' "
        "and this host's name, and has role host. Empty: the token in [volt] token_file is used.",
    ),
    cfg.StrOpt(
        "cafile",
        default="",
        help="File with the certificates that vouch for Keystone's, where auth_url is https. "
        "Empty: those that this system trusts.",
    ),
]
