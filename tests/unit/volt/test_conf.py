"""Which options Volt has."""

import tempfile
from pathlib import Path

import testtools
from oslo_config import cfg

from volt import conf


class TestConf(testtools.TestCase):
    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "volt.conf")
            path.write_text(text)
            return conf.load([str(path)])

    def test_the_default_listens_on_this_machine_only(self):
        assert self.load("").api.bind == "127.0.0.1:8778"

    def test_values_out_of_range_are_refused_at_the_start(self):
        for text in ("[api]\nworkers = 0\n", "[heartbeat]\ninterval = 0\n"):
            self.assertRaises(cfg.Error, self.load, text)

    def test_one_lost_heartbeat_must_not_be_the_end_of_a_host(self):
        self.assertRaises(cfg.Error, self.load, "[heartbeat]\ninterval = 10\n")
        assert self.load("[heartbeat]\ninterval = 10\nexpiry = 20\n").heartbeat.expiry == 20

    def test_every_number_has_bounds_and_every_option_a_help(self):
        for _, options in conf.list_opts():
            for option in options:
                assert option.help
                if isinstance(option, cfg.IntOpt | cfg.FloatOpt):
                    assert None not in (option.type.min, option.type.max)
