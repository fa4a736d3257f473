"""Where Volt's state lies and how long a writer waits for it."""

from oslo_config import cfg

GROUP = "database"

OPTIONS = [
    cfg.StrOpt(
        "connection",
        default="sqlite:////var/lib/volt/volt.sqlite",
        secret=True,
        help="SQLAlchemy URL of the database. It may hold a password and is never logged.",
    ),
    cfg.FloatOpt(
        "busy_timeout",
        default=10.0,
        min=0.1,
        max=60.0,
        help="Seconds for which a writer waits for its turn at a SQLite database, before it "
        "tries again (three times in all). Raising it lets long queues drain; lowering it "
        "refuses requests sooner under overload.",
    ),
]
