"""How volt-api serves: gunicorn with threads, on a database at the newest schema."""

import logging
import os
import shutil
import tempfile
from typing import Any

import click
from gunicorn.app.base import BaseApplication
from oslo_config import cfg

from volt import conf
from volt.cmd import config_files
from volt.errors import VoltError


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
            "child_exit": _forget,
            "on_exit": _clean,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> object:
        """Build the application in the worker: SQLite connections must not cross a fork."""
        from volt import app  # noqa: PLC0415  # not before the folder is known: see main

        return app.from_conf(self._options)


def _forget(server: object, worker: Any) -> None:
    from volt import metrics  # noqa: PLC0415

    metrics.forget_worker(worker.pid)


def _clean(server: object) -> None:
    shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)


@click.command()
@config_files
def main(files: tuple[str, ...]) -> None:
    """Serve Volt's REST API."""
    # The workers' counts lie here. Whatever imports volt.metrics must come after this.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="volt-metrics-")
    from volt.db import upgrade  # noqa: PLC0415
    from volt.db.engine import connect  # noqa: PLC0415

    try:
        options = conf.load(files or None)
        engine = connect(options.database.connection, options.database.busy_timeout)
        upgrade.check(engine)
        engine.dispose()
    except (VoltError, cfg.Error) as err:
        _clean(None)
        raise click.ClickException(str(err)) from err
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    _Server(options).run()


if __name__ == "__main__":
    main()
