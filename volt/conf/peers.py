"""How agents prove to each other who they are."""

from oslo_config import cfg

GROUP = "peers"

OPTIONS = [
    cfg.IntOpt(
        "lifetime",
        default=24,
        min=1,
        max=8760,
        help="Hours for which a certificate that Volt signs for an agent is valid; the agent "
        "renews it after two thirds of that. Lower: a host whose token was revoked is locked out "
        "sooner. Higher: VMs can be moved for longer while Volt is down.",
    ),
]
