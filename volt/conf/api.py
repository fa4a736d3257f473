"""Where Volt listens and how many requests it serves at once."""

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
]
