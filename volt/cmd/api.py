"""How volt-api serves: gunicorn with threads, on a database at the newest schema."""

import logging
import ssl

import click
from gunicorn.app.base import BaseApplication
from oslo_config import cfg

from volt import app, conf, policies
from volt.cmd import config_files, reported
from volt.db import upgrade
from volt.db.engine import connect


class _Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    def __init__(self, options: cfg.ConfigOpts) -> None:
        self._options = options
        super().__init__()

    def load_config(self) -> None:
        settings = {
            "bind": self._options.api.bind,
            "workers": self._options.api.workers,
            "threads": self._options.api.threads,
            "worker_class": "gthread",
            "keepalive": 75,  # longer than any heartbeat interval: no new connection for each
            "proc_name": "volt-api",
            "control_socket_disable": True,  # nothing listens that was not asked for
            "certfile": self._options.api.tls_cert,
            "keyfile": self._options.api.tls_key,
            "ca_certs": self._options.api.tls_ca,
            "cert_reqs": ssl.CERT_REQUIRED if self._options.api.tls_ca else ssl.CERT_NONE,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> object:
        """Build the application in the worker: SQLite connections must not cross a fork."""
        return app.from_conf(self._options)


@click.command()
@config_files
@click.option("--debug", is_flag=True, help="Log heartbeats and health checks too.")
def main(files: tuple[str, ...], debug: bool) -> None:
    """Serve Volt's REST API."""
    with reported():
        options = conf.load(files or None)
        engine = connect(options.database.connection, options.database.busy_timeout)
        upgrade.check(engine)
        engine.dispose()
        policies.load(options)
    _check_tls(options)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if debug:
        logging.getLogger("volt").setLevel(logging.DEBUG)
    _Server(options).run()


def _check_tls(options: cfg.ConfigOpts) -> None:
    """Tell before the start what gunicorn would find out at each connection."""
    api = options.api
    if not (api.tls_cert or api.tls_key or api.tls_ca):
        return
    if not (api.tls_cert and api.tls_key):
        raise click.ClickException("[api] tls_cert and tls_key go together: set both or none")
    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=api.tls_ca)
        context.load_cert_chain(api.tls_cert, api.tls_key)
    except OSError as err:
        raise click.ClickException(
            f"[api] tls_cert {api.tls_cert}, tls_key {api.tls_key}, tls_ca {api.tls_ca}: {err}"
        ) from err


if __name__ == "__main__":
    main()
