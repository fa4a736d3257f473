"""Heat on a bed, from an environment of its own. Only tests of it start it."""

import json
from typing import Any

from lab import processes
from lab.openstack import environment
from lab.openstack.bed import USER, OpenStack
from lab.openstack.services import Service, uwsgi
from lab.openstack.settings import PASSWORD

PORT = 8004


class Orchestration:
    """Heat of a bed that is up."""

    def __init__(self, cloud: OpenStack) -> None:
        self.cloud = cloud
        self.environment = environment.heat()
        self.config = cloud.settings.etc / "heat/heat.conf"

    def start(self) -> None:
        """Make its tables, and start it; return once it answers."""
        values = {"heat": self.environment.folder, "password": PASSWORD}
        self.cloud.settings.write("heat.conf", self.config, **values)
        self._run("heat-manage", "--config-file", str(self.config), "db_sync")
        self.cloud.control.start_all(self._services())

    def stop(self) -> None:
        """End it."""
        for service in self._services():
            process = self.cloud.bed.process(service.name)
            if process:
                process.end(grace=10)

    def client(self, *words: str) -> Any:
        """Return what openstackclient shows, with Heat's commands; raises CommandFailed."""
        return json.loads(self._run("openstack", *words, "-f", "json"))

    def order(self, *words: str) -> None:
        """Have openstackclient do what it shows nothing of; raises CommandFailed."""
        self._run("openstack", *words)

    def _services(self) -> list[Service]:
        program, files = self.environment.program, ["--config-file", str(self.config)]
        variables = self._variables()
        api = uwsgi(program("uwsgi"), PORT, "heat.wsgi.api:application", files)
        return [
            Service("heat-engine", [program("heat-engine"), *files], variables=variables),
            Service("heat-api", api, PORT, "/healthcheck", variables),
        ]

    def _run(self, *words: str) -> str:
        command = [*processes.MORTAL, *words]
        done = self.cloud.bed.run_in(command, timeout=600, env=self._variables() | USER)
        return done.stdout

    def _variables(self) -> dict[str, str]:
        return self.environment.variables() | {"HOME": str(self.cloud.settings.state)}
