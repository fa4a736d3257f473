"""The programs of OpenStack that run beside the nodes, and how each is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab.network import ADDRESS
from lab.openstack.settings import Settings

RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on PATH insists on its account


@dataclass(frozen=True)
class Service:
    """One program.

    :ivar port: where it listens; None if it only takes messages
    :ivar path: answers over HTTP once it serves; empty if it does not speak HTTP
    """

    name: str
    command: Sequence[str | Path]
    port: int | None = None
    path: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


def infrastructure(settings: Settings) -> list[Service]:
    """Return what all services stand on."""
    state = settings.state
    database = {
        "user": "root",
        "datadir": state / "mariadb",
        "socket": state / "mariadb.sock",
        "pid-file": state / "mariadb.pid",
        "bind-address": ADDRESS,
        "port": 3306,
        "init-file": settings.etc / "first.sql",
        "innodb-buffer-pool-size": "96M",
        "innodb-flush-log-at-trx-commit": 0,
        "innodb-doublewrite": 0,
        "performance-schema": "OFF",
        "max-connections": 500,
        "character-set-server": "utf8mb4",
    }
    options = [f"--{name}={value}" for name, value in database.items()]
    return [
        Service("mariadb", ["mariadbd", "--no-defaults", "--skip-name-resolve", *options], 3306),
        # Erlang would start it as a daemon, which nobody ends.
        Service("epmd", ["epmd", "-port", "4369"], 4369, variables=_rabbitmq(settings)),
        Service("rabbitmq", [RABBITMQ], 5672, variables=_rabbitmq(settings)),
        Service("memcached", ["memcached", "-u", "root", "-l", ADDRESS, "-m", "32"], 11211),
        Service("networking", [_python(settings), _script("networking"), ADDRESS, "9696"], 9696),
    ]


def keystone(settings: Settings) -> Service:
    """Return what all services ask who is who."""
    folder = settings.etc / "keystone"
    where = {
        "OS_KEYSTONE_CONFIG_DIR": str(folder),
        "OS_KEYSTONE_CONFIG_FILES": str(folder / "keystone.conf"),
    }
    return _wsgi(settings, "keystone", 5000, "/v3", "keystone.wsgi.api", where)


def services(settings: Settings) -> list[Service]:
    """Return OpenStack's own services beside the nodes, but for Keystone and Nova."""
    etc = settings.etc
    cinder = [
        *("--config-file", etc / "cinder/cinder.conf"),
        *("--config-file", etc / "cinder/control.conf"),
    ]
    place = {"OS_PLACEMENT_CONFIG_DIR": str(etc / "placement")}
    scheduler = settings.control.program("cinder-scheduler")
    return [
        _wsgi(settings, "placement", 8780, "/", "placement.wsgi.api", place),
        _wsgi(settings, "cinder-api", 8776, "/", "cinder.wsgi.api", {}, cinder),
        Service("cinder-scheduler", [scheduler, *cinder]),
    ]


def nova(settings: Settings) -> list[Service]:
    """Return Nova's services; which Nova that is, is what the bed runs when they are started."""
    etc, program = settings.etc / "nova", settings.control.program
    files = ["--config-file", etc / "nova.conf", "--config-file", etc / "control.conf"]
    # These names replace the default ones, of which the first is the file of the WSGI filters.
    compute = {
        "OS_NOVA_CONFIG_DIR": str(etc),
        "OS_NOVA_CONFIG_FILES": "api-paste.ini;nova.conf;control.conf",
    }
    return [
        _wsgi(settings, "nova-api", 8774, "/", "nova.wsgi.osapi_compute", compute),
        Service("nova-conductor", [program("nova-conductor"), *files]),
        Service("nova-scheduler", [program("nova-scheduler"), *files]),
    ]


def _wsgi(
    settings: Settings,
    name: str,
    port: int,
    path: str,
    module: str,
    variables: Mapping[str, str],
    arguments: Sequence[str | Path] = (),
) -> Service:
    return Service(
        name,
        uwsgi(settings.control.program("uwsgi"), port, f"{module}:application", arguments),
        port,
        path,
        variables,
    )


def uwsgi(
    program: Path,
    port: int,
    module: str,
    arguments: Sequence[str | Path] = (),
    address: str = ADDRESS,
) -> list[str | Path]:
    """Return the command that serves a WSGI application; ``arguments`` are its sys.argv."""
    given = ["--pyargv", " ".join(map(str, arguments))] if arguments else []
    return [
        *(program, "--http-socket", f"{address}:{port}", "--module", module, *given),
        *("--processes", "1", "--threads", "6", "--enable-threads", "--master", "--die-on-term"),
        *("--lazy-apps", "--need-app", "--buffer-size", "65535", "--http-chunked-input"),
        # Glance's client sends pieces of a MiB, and uWSGI counts their headers, too.
        *("--chunked-input-limit", str(2 << 20)),
        *("--add-header", "Connection: close"),
    ]


def _rabbitmq(settings: Settings) -> dict[str, str]:
    folder = settings.state / "rabbitmq"
    return {
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(settings.etc / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(settings.logs),
        "RABBITMQ_MNESIA_BASE": str(folder),
        "RABBITMQ_NODENAME": "openstack@localhost",
        # Two cores have others to run as well: no thread waits by turning round.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none "
        "-kernel inet_dist_use_interface {127,0,0,1}",
    }


def _python(settings: Settings) -> Path:
    return settings.control.program("python")


def _script(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.py")
