"""Where Volt listens, whom it serves, and how many requests at once."""

from oslo_config import cfg

GROUP = "api"

OPTIONS = [
    cfg.StrOpt(
        "bind",
        default="127.0.0.1:8778",
        help="Address and port to listen on. The default serves only this machine; set the "
        "address of the hosts' network, because Volt listens nowhere else.",
    ),
    cfg.IntOpt(
        "workers",
        default=1,
        min=1,
        max=64,
        help="Processes that serve requests, each up to 12,000 at once. More workers use more "
        "cores. With SQLite they wait for each other: raise this only with another database.",
    ),
    cfg.StrOpt(
        "auth",
        default="token",
        choices=[
            ("token", "tokens that volt-manage token create gives out"),
            ("keystone", "tokens of OpenStack's Keystone: see group keystone_authtoken"),
            ("both", "Keystone for users, and tokens of its own for agents and services"),
        ],
        help="How Volt knows its clients.",
    ),
    cfg.FloatOpt(
        "rate",
        default=100.0,
        min=0.1,
        max=1_000_000.0,
        help="Requests a second that a worker accepts from one token on average, and wrong "
        "tokens that it looks up for one address. Higher: a program that works for many hosts is "
        "faster. Lower: a program that runs wild slows others less.",
    ),
    cfg.IntOpt(
        "burst",
        default=1000,
        min=1,
        max=1_000_000,
        help="Requests that a worker accepts from one token at once, after it was quiet. Higher: "
        "a host can start more images at the same time.",
    ),
    cfg.StrOpt(
        "tls_cert",
        help="File with Volt's certificate and its intermediate certificates (PEM). With it Volt "
        "speaks only https.",
    ),
    cfg.StrOpt(
        "tls_key",
        help="File with the private key of the certificate (PEM). Only Volt's account may read it.",
    ),
    cfg.StrOpt(
        "tls_ca",
        help="File with CA certificates (PEM). With it Volt serves only clients with a "
        "certificate of one of these, such as a proxy in front of it.",
    ),
]
