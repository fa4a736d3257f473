"""Where Volt listens, whom it serves, and how many requests at once."""

from oslo_config import cfg

GROUP = "api"

OPTIONS = [
    cfg.StrOpt(
        "bind",
        default="127.0.0.1:8778",
        help="Address and port to listen on. The default serves this machine only; give the "
        "address of the network of the hosts, since nothing else is listened on.",
    ),
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        max=64,
        help="Processes that serve requests, each up to 12,000 at once. More use more cores; with "
        "SQLite they wait for each other, so raise this only with another database.",
    ),
    cfg.StrOpt(
        "auth",
        default="token",
        choices=[
            ("token", "tokens that volt-manage token create gives out"),
            ("keystone", "tokens of OpenStack's Keystone: see group keystone_authtoken"),
            ("both", "Keystone for users, and tokens of its own for agents and services"),
        ],
        help="By what Volt knows who asks.",
    ),
    cfg.FloatOpt(
        "rate",
        default=100.0,
        min=0.1,
        max=1_000_000.0,
        help="Requests a second that a worker takes from one token on average, and wrong tokens "
        "that it looks up for one address. Raising it lets a program that speaks for many hosts "
        "work faster; lowering it keeps one that runs wild from slowing others down.",
    ),
    cfg.IntOpt(
        "burst",
        default=1000,
        min=1,
        max=1_000_000,
        help="Requests that a worker takes from one token at once, after it was quiet. Raising "
        "it lets a host start more images at the same time.",
    ),
    cfg.StrOpt(
        "tls_cert",
        help="File with Volt's certificate, and those between it and its authority (PEM). With "
        "it Volt speaks https, and only that.",
    ),
    cfg.StrOpt(
        "tls_key",
        help="File with the key of the certificate (PEM), which only Volt's account may read.",
    ),
    cfg.StrOpt(
        "tls_ca",
        help="File with certificates of authorities (PEM). With it Volt serves only clients, "
        "such as a proxy before it, that show a certificate of one of these.",
    ),
]
