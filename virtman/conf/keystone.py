"""Options of the account by which Volt knows this host where it asks Keystone."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "keystone"
OPTS = [
    cfg.StrOpt(
        "auth_type",
        default="",
        help="How the agent logs in to Keystone, if Volt asks Keystone who its clients are: "
        "'password', 'v3applicationcredential' or another plugin of keystoneauth. The options of "
        "the plugin (auth_url, username, password and so on) belong into this group too. The "
        "user is called 'virtman-' and this host's name, and has role host. Empty: the token in "
        "[volt] token_file is used.",
    ),
    cfg.StrOpt(
        "cafile",
        default="",
        help="File with CA certificates to verify Keystone's with, if auth_url is https. Empty: "
        "those that this system trusts.",
    ),
]
