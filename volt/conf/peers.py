"""How agents prove to each other who they are."""

from oslo_config import cfg

GROUP = "peers"

OPTIONS = [
    cfg.IntOpt(
        "lifetime",
        default=24,
        min=1,
        max=8760,
        help="Hours for which a certificate that Volt signs for an agent holds; the agent has "
        "it renewed after two thirds of them. Lowering it locks a host whose token was revoked "
        "out sooner; raising it lets VMs be moved for longer while Volt is down.",
    ),
]
