"""How volt-api serves: gunicorn with greenlets, on a database at the newest schema."""

# Before all else: what others imported unpatched would block a whole process.
from gevent import monkey

monkey.patch_all(os=False, signal=False, subprocess=False)

import os  # noqa: E402
import tempfile  # noqa: E402

# Where the workers count; volt.metrics looks for it as it is imported.
_FOLDER = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="volt-metrics-")

import gc  # noqa: E402
import logging  # noqa: E402
import resource  # noqa: E402
import shutil  # noqa: E402
import socket  # noqa: E402
import ssl  # noqa: E402
import time  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from typing import Any  # noqa: E402

import click  # noqa: E402
import gevent  # noqa: E402
from gunicorn.app.base import BaseApplication  # noqa: E402
from gunicorn.arbiter import Arbiter  # noqa: E402
from gunicorn.workers.ggevent import GeventWorker  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_policy import policy  # noqa: E402

from volt import conf, metrics  # noqa: E402
from volt.api import app  # noqa: E402
from volt.auth import policies  # noqa: E402
from volt.background.worker import Worker  # noqa: E402
from volt.cmd import SETTINGS, config_files, reported, version_option  # noqa: E402
from volt.db import upgrade  # noqa: E402

LOG = logging.getLogger(__name__)

KEEP_ALIVE = 75  # seconds: longer than any heartbeat interval, no new connection for each
LAST_WORD = 0.5  # seconds in which a request may still come to a worker that stops
GRACE = 10  # seconds in which a worker that was told to stop answers what it has begun
BODY = 60  # seconds for which a request's body is waited for: all of it, not each part
_AT_ONCE = 0.001  # seconds
CONNECTIONS = 12_000  # of one worker: all that may wait for news, and some to be served


class _Idle(gevent.Timeout):  # type: ignore[misc]  # gevent's stubs do not say its base
    """How long a connection may be without a request; it can be cut short."""

    waiting: set["_Idle"] = set()  # noqa: RUF012  # one set for all, on purpose

    def __enter__(self) -> "_Idle":
        self._waits = gevent.getcurrent()
        self.waiting.add(self)
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> Any:
        self.waiting.discard(self)
        return super().__exit__(*raised)

    def cut(self) -> None:
        gevent.get_hub().loop.run_callback(self._waits.throw, self)


class _Body:
    """A request's body; if it takes too long, it ends as if the client had hung up."""

    def __init__(self, request: Any) -> None:
        self._request = request
        self._body = request.body
        self._left: float = BODY

    def read(self, size: int | None = None) -> bytes:
        begun = time.monotonic()
        with gevent.Timeout(self._left, False):
            part: bytes = self._body.read(size)
            self._left = max(_AT_ONCE, self._left - (time.monotonic() - begun))
            return part
        self._left = _AT_ONCE
        self._request.force_close()  # what comes yet is no request
        return b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


class _Answer:
    """A connection that sends an answer in one piece: who is killed leaves all of it or nothing.

    A proxy asks another Volt then, which it cannot once it has passed a part on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._parts: list[bytes] = []

    def sendall(self, part: bytes) -> None:
        self._parts.append(part)

    def done(self) -> None:
        if self._parts:
            self._connection.sendall(b"".join(self._parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Greenlets(GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """A worker that stops at once: it answers who waits, and closes what is idle."""

    sockets: list[Any]
    _stopping: gevent.Greenlet | None = None

    def init_process(self) -> None:
        # They do not change any more. Looking each up anew, as gunicorn does, costs a tenth of
        # what a request costs it.
        self.cfg.__dict__.update({name: each.get() for name, each in self.cfg.settings.items()})
        super().init_process()

    def patch(self) -> None:
        # What this file patches as it is imported is enough. gunicorn would patch once more, and
        # other things, of which gevent warns.
        self.sockets = [
            socket.socket(one.FAMILY, socket.SOCK_STREAM, fileno=one.sock.detach())
            for one in self.sockets
        ]

    def timeout_ctx(self) -> gevent.Timeout:
        return _Idle(KEEP_ALIVE if self.alive else LAST_WORD, False)

    def handle_request(self, listener: str, request: Any, client: Any, address: Any) -> Any:
        answer = _Answer(client)
        request.body = _Body(request)
        try:
            return super().handle_request(listener, request, answer, address)
        finally:
            answer.done()

    def handle_exit(self, sig: int, frame: object) -> None:
        super().handle_exit(sig, frame)
        self._stopping = gevent.spawn(self._stop)  # a signal handler must not block

    def run(self) -> None:
        super().run()
        if self._stopping is not None:  # else the clock might not be handed on any more
            self._stopping.join(GRACE)

    def _stop(self) -> None:
        for idle in list(_Idle.waiting):
            idle.cut()
        self.app.worker.stop()


@dataclass(frozen=True)
class _Files:
    """What other files than that of the options say.

    The master reads them and workers get them as they fork: so a worker that is started anew
    cannot fail at a file that somebody is changing, which would end all of Volt.
    """

    rules: policy.Enforcer
    tls: ssl.SSLContext | None

    @classmethod
    def read(cls, options: cfg.ConfigOpts) -> "_Files":
        """Raise PolicyInvalid or ClickException if one cannot be used."""
        return cls(policies.load(options), _tls(options))


class _Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    worker: Worker

    def __init__(self, options: cfg.ConfigOpts, files: _Files) -> None:
        self._options = options
        self._files = files
        super().__init__()

    def run(self) -> None:
        _Master(self).run()

    def read_again(self) -> None:
        """Let workers that start from now on go by the files as they are now."""
        self._files = _Files.read(self._options)

    def load_config(self) -> None:
        settings = {
            "bind": self._options.api.bind,
            "workers": self._options.api.workers,
            "worker_class": _Greenlets,
            "worker_connections": CONNECTIONS,
            "backlog": 4096,  # all hosts of a large site may connect at once after a restart
            "keepalive": KEEP_ALIVE,
            "graceful_timeout": GRACE,
            "sendfile": False,  # it would pass _Answer by
            "proc_name": "volt-api",
            "control_socket_disable": True,  # nothing listens that was not asked for
            "certfile": self._options.api.tls_cert,
            "keyfile": self._options.api.tls_key,
            "ssl_context": lambda config, make: self._files.tls,
            "child_exit": _forget,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> object:
        """Build the application in the worker: connections must not cross a fork."""
        self.worker = Worker(self._options)
        self.worker.start()
        served = app.from_conf(self._options, self.worker, self._files.rules)
        # What is loaded by now stays. Looking through it again and again for garbage, as
        # Python would at the pace in which requests come, takes a third of the time.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        return served


class _Master(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A master that starts new workers only with files that can be used."""

    def reload(self) -> None:
        try:
            with reported():
                self.app.read_again()
        except click.ClickException as err:
            LOG.error("Not reloaded, all goes on as before: %s", err.message)
        else:
            super().reload()


def _forget(server: object, worker: Any) -> None:
    metrics.forget_worker(worker.pid)


@click.command(context_settings=SETTINGS)
@config_files
@version_option("volt-api")
@click.option("--debug", is_flag=True, help="Also log heartbeats and health checks.")
def main(files: tuple[str, ...], debug: bool) -> None:
    """Serve Volt's REST API."""
    master = os.getpid()
    try:
        _serve(files, debug)
    finally:
        if os.getpid() == master:  # workers, which come by here too, still count
            shutil.rmtree(_FOLDER, ignore_errors=True)


def _serve(files: tuple[str, ...], debug: bool) -> None:
    with reported():
        options = conf.load(files or None)
        engine = upgrade.opened(options.database.connection, options.database.busy_timeout)
        engine.dispose()  # no connection may cross a fork
        beside = _Files.read(options)
        _check_broker(options)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if options.api.workers > 1 and engine.dialect.name == "sqlite":
        LOG.warning("SQLite lets one worker write at a time: each of the others stands still then")
    if debug:
        logging.getLogger("volt").setLevel(logging.DEBUG)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # a connection each
    _Server(options, beside).run()


def _tls(options: cfg.ConfigOpts) -> ssl.SSLContext | None:
    """Return what connections are encrypted with; None is nothing."""
    api = options.api
    if not (api.tls_cert or api.tls_key or api.tls_ca):
        return None
    if not (api.tls_cert and api.tls_key):
        raise click.ClickException("[api] tls_cert and tls_key go together: set both or none")
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=api.tls_ca)
        context.load_cert_chain(api.tls_cert, api.tls_key)
        context.verify_mode = ssl.CERT_REQUIRED if api.tls_ca else ssl.CERT_NONE
    except OSError as err:
        raise click.ClickException(
            f"[api] tls_cert {api.tls_cert}, tls_key {api.tls_key}, tls_ca {api.tls_ca}: {err}"
        ) from err
    return context


def _check_broker(options: cfg.ConfigOpts) -> None:
    """Tell before the start what each worker would die of."""
    if options.notify.transport_url and find_spec("oslo_messaging") is None:
        raise click.ClickException(
            "[notify] transport_url is set: install the Python package oslo.messaging, or unset it"
        )


if __name__ == "__main__":
    main()
