"""Runs of boots at once as a picture."""

import tempfile
from pathlib import Path

import matplotlib.font_manager  # noqa: F401 - starts a process, once, to find this machine's fonts
import testtools

from bench import plot


def run(peer, nodes=3, **figures):
    return {
        "peer": peer,
        "workload": "replay",
        "nodes": nodes,
        "link_bits_s": 25_000_000,
        "limit_s": 24.8,
        "warm_last_s": 22.5,
        "working_set_bytes": 77_000_000,
        "source_sent_bytes": 84_000_000,
        "ready_s": [40.0, 41.5, 46.4][:nodes],
        "sent_bytes": [0, 60_000_000, 88_000_000][:nodes],
        "received": [(10.0, 1e6), (20.0, 3e7), (46.0, 8e7)],
        **figures,
    }


class PlotTest(testtools.TestCase):
    def test_a_row_for_each_number_of_nodes_and_link(self):
        runs = [
            run("virtman"),
            run("iscsi", ready_s=[170.0, 171.0, 172.0]),
            run("virtman", 2, link_bits_s=0),
        ]
        with tempfile.TemporaryDirectory() as folder:
            for name, begin in (("storm.svg", b"<?xml"), ("storm.png", b"\x89PNG")):
                file = Path(folder, name)
                plot.draw(runs, file)
                self.assertTrue(file.read_bytes().startswith(begin), name)
            text = (Path(folder) / "storm.svg").read_text()
        self.assertEqual(2, text.count("<!-- sent -->"))
