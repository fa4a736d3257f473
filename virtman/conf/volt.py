"""Options of the way to the coordinator."""

from __future__ import annotations

from oslo_config import cfg

GROUP = "volt"
OPTS = [
    cfg.StrOpt(
        "url",
        default="http://127.0.0.1:8778",
        help="URL of Volt. Use https if others can read the network: tokens and iSCSI secrets "
        "travel on it.",
    ),
    cfg.StrOpt(
        "token_file",
        default="",
        help="File with the token that 'volt-manage token create --role host --host NAME' "
        "printed, readable by [agent] user only (mode 0600). It is read for each request, so a "
        "new token needs no restart. Empty: no token is sent.",
    ),
    cfg.StrOpt(
        "cafile",
        default="",
        help="File with CA certificates to verify Volt's with, if url is https. Empty: those "
        "that this system trusts.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=10.0,
        min=0.1,
        max=120.0,
        help="Seconds to wait for an answer. Higher: a busy Volt is survived. Lower: errors show "
        "sooner.",
    ),
]
