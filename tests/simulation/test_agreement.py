"""All cases whose outcome is known, and what a thousand hosts take to simulate."""

import json
import math
import resource
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import testtools

from planning import placed
from planning.simulation import agreement, prediction
from planning.simulation.agreement import MBIT
from planning.simulation.run import run
from virtman.model.profile import PIECE
from volt.placement.rules import Shape

PYTHON = "/usr/bin/python3"  # Debian's packages are for it
BROADCAST = Path(__file__).with_name("broadcast.py")
NEAR = {"lab": 0.1, "figure 5": 0.05, "model": 0.02, "simgrid": 0.05}


def is_of_processors(case):
    """Tell whether the processors of the bed decided, which are not simulated."""
    cluster, design = case.scenario.cluster, case.scenario.design
    is_fast = case.group == "lab" and cluster.link > 50 * MBIT
    return is_fast and (design.ahead or design.rules.shape == Shape.STAR)


def as_asked(scenario):
    """Return a scenario as broadcast.py reads it: the trees that Volt's placement makes."""
    joining = placed.hosts(scenario.cluster.hosts, 1, Random(scenario.seed))
    places = placed.place(joining, scenario.design.rules)
    units = [scenario.stripe(unit) for unit in range(round(scenario.boot.working_set / PIECE))]
    stripes = range(scenario.design.rules.stripes)
    return {
        "link": scenario.cluster.link,
        "unit": scenario.unit,
        "units": [units.count(stripe) for stripe in stripes],
        "edges": [
            [stripe, node.parent or "source", node.host]
            for stripe in stripes
            for node in places.nodes(stripe)
        ],
    }


class AgreementTest(testtools.TestCase):
    def test_cases_are_near(self):
        far = []
        for case in agreement.cases():
            found = agreement.compare(case)
            allowed = 0.25 if is_of_processors(case) else NEAR[case.group]
            if abs(found.difference) > allowed:
                far.append(found)
        self.assertEqual([], far)

    def test_attach_levels_show_as_steps(self):
        # VirtMan, Figure 5: jumps when a level is added, at 15, 31 and 63 servers. What uplinks
        # carry depends on the order in which hosts join, so they are left out here.
        for count in (15, 31, 63):
            before, after = (self.without_uplinks(servers) for servers in (count - 1, count))
            self.assertAlmostEqual(10, after - before, delta=4, msg=count)

    def without_uplinks(self, servers):
        scenario = agreement.figure_5(servers)
        return run(replace(scenario, cluster=replace(scenario.cluster, uplink=math.inf))).last_s

    def test_simgrid_says_the_same(self):
        if subprocess.run(
            [PYTHON, "-c", "import simgrid"], capture_output=True, check=False
        ).returncode:
            self.skipTest("Debian's python3-simgrid is not installed")
        asked = as_asked(agreement.SIMGRID.scenario)
        done = subprocess.run(
            [PYTHON, BROADCAST], input=json.dumps(asked), capture_output=True, text=True,
            check=True, timeout=600,
        )  # fmt: skip
        theirs = json.loads(done.stdout[done.stdout.index("{") :])
        self.assertEqual(255, len(theirs))
        self.assertAlmostEqual(agreement.SIMGRID.reference, max(theirs.values()), delta=0.001)


class GoalTest(testtools.TestCase):
    """What ours is to reach: the last VM over the limit, and sets over an uplink, a stripe."""

    def reached(self, site, **cluster):
        """Return the result of a site, which took so many seconds of a processor."""
        scenario = replace(prediction.SITES[site], design=prediction.DESIGNS["ours"])
        scenario = replace(scenario, cluster=replace(scenario.cluster, **cluster))
        begin = time.process_time()
        result = run(scenario)
        over = result.last_s / scenario.limit_s
        self.assertLess(over, 1.4 if scenario.deaths else 1.2, site)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 2 * 2**20)  # KiB
        return result, time.process_time() - begin

    def through_uplinks(self, result):
        design, size = result.scenario.design, result.scenario.boot.working_set
        return max(result.into_racks) / size / design.rules.stripes

    def test_sites(self):
        for site in prediction.SITES:
            result, seconds = self.reached(site)
            self.assertLess(seconds, 120, site)
            self.assertLess(self.through_uplinks(result), 1.2, site)

    def test_ten_thousand_hosts_of_which_a_thousand_die(self):
        result, seconds = self.reached("deaths", hosts=10_000, racks=250)
        self.assertEqual((1000, 9000), (result.dead, len(result.ready_s)))
        self.assertLess(seconds, 1800)
