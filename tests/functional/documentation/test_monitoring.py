"""The sample alerts and the sample dashboard ask for figures that there are, and work."""

import ast
import json
import re
import subprocess
from pathlib import Path

import fixtures
import requests
import testtools
from prometheus_client.parser import text_string_to_metric_families

from tests.functional.virtman.base import TestCase
from volt.transport import RENEWED

ETC = Path(__file__).parents[3] / "etc"
PAGE = ETC.parent / "doc/source/operator/monitoring.rst"
ALERTS = ETC / "prometheus/virtman-alerts.yml"
NAME = re.compile(r"\b(?:volt|virtman)_\w+")


def dashboard():
    """Return the dashboard's queries."""
    panels = json.loads((ETC / "grafana/virtman.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


class PromtoolTest(testtools.TestCase):
    def promtool(self, *words):
        done = subprocess.run(
            ["promtool", *words], cwd=ALERTS.parent, capture_output=True, text=True, check=False
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_the_alerts_are_valid_and_fire_when_they_should(self):
        self.promtool("check", "rules", ALERTS.name)
        self.promtool("test", "rules", "virtman-alerts-test.yml")

    def test_the_queries_of_the_dashboard_are_valid(self):
        rules = [
            {"record": f"panel:{number}", "expr": expression}
            for number, expression in enumerate(dashboard())
        ]
        file = Path(self.useFixture(fixtures.TempDir()).path) / "rules.yml"
        file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
        self.promtool("check", "rules", str(file))


class EventsTest(testtools.TestCase):
    def test_the_table_of_events_has_all_that_are_noted_and_no_others(self):
        rows = re.search(r"^=+ =+\nkind .*?\n=+ =+\n(.*?)\n=+ =+$", PAGE.read_text(), re.M | re.S)
        listed = re.findall(r"^\w[\w, ]{,15}", rows[1], re.M)
        told = {kind for names in listed for kind in names.replace(",", " ").split()}
        noted = {
            found.value
            for file in (PAGE.parents[3] / "volt").rglob("*.py")
            for call in ast.walk(ast.parse(file.read_text()))
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("note")
            for found in ast.walk(call.args[1 if ast.unparse(call.args[0]) == "session" else 0])
            if isinstance(found, ast.Constant)
        }
        self.assertEqual(noted | {RENEWED, "join"}, told)


class NamesTest(TestCase):
    def test_every_figure_that_is_asked_for_is_there(self):
        node = self.bed.node()
        node.create("vm1")
        with node.process.here():
            agent = list(node.figures().collect())
        volt = text_string_to_metric_families(self.volt_metrics())
        known = {
            name
            for family in (*agent, *volt)
            for name in (family.name, *(sample.name for sample in family.samples))
        }
        asked = set(NAME.findall(" ".join([*dashboard(), ALERTS.read_text()])))
        self.assertEqual(set(), {name for name in asked - known if not self.is_kept(name, known)})

    def is_kept(self, name, known):
        """Tell whether a figure is of a histogram that nothing was counted in yet."""
        return re.sub("_(bucket|count|sum)$", "", name) in known

    def volt_metrics(self):
        volt = self.bed.volt
        headers = {"Authorization": f"Bearer {volt.ground.operator}"}
        return requests.get(f"{volt.url}/metrics", headers=headers, timeout=5).text
