"""Where Volt's state lies and how long a writer waits for it."""

from oslo_config import cfg

GROUP = "database"

OPTIONS = [
    cfg.StrOpt(
        "connection",
        default="sqlite:////var/lib/volt/volt.sqlite",
        secret=True,
        help="URL of the database: sqlite:///FILE, postgresql://USER:PASSWORD@HOST/NAME or "
        "mysql://USER:PASSWORD@HOST/NAME. It is never logged.",
    ),
    cfg.IntOpt(
        "connections",
        default=10,
        min=1,
        max=100,
        help="Limit for the connections of one worker to PostgreSQL or MariaDB. They are opened "
        "when needed, and kept. Higher: more requests of a worker use the database at once; the "
        "server must allow the connections of all workers together.",
    ),
    cfg.FloatOpt(
        "busy_timeout",
        default=10.0,
        min=0.1,
        max=60.0,
        help="Seconds for which a writer waits for its turn before it tries again, three times "
        "in all. Higher: long queues can drain. Lower: requests are refused sooner under "
        "overload.",
    ),
]
