"""The samples for nova.conf: options that this nova has, with values that it takes."""

from pathlib import Path

import testtools
from oslo_config import iniparser
from oslo_db import options as database
from oslo_messaging import opts as messaging

from virtman.openstack import options, weigher

FOLDER = Path(__file__).resolve().parents[2] / "etc" / "openstack"
FILE = FOLDER / "nova-large-requests.conf"
SAMPLE = FOLDER / "nova-virtman.conf"


class Settings(iniparser.BaseParser):
    """What a file sets, in order."""

    def __init__(self):
        super().__init__()
        self.group = ""
        self.found = []

    def new_section(self, section):
        self.group = section

    def assignment(self, key, value):
        self.found.append((self.group, key, value[0]))


class SettingsTest(testtools.TestCase):
    def setUp(self):
        super().setUp()
        self.conf = weigher.conf.CONF
        options.register(self.conf)
        self.addCleanup(self.conf.reset)
        for listed in (database.list_opts(), messaging.list_opts()):
            for group, found in listed:
                self.conf.register_opts(found, group=group)
        self.settings = self.read(FILE)

    def read(self, file):
        parser = Settings()
        with open(file, encoding="utf-8") as lines:
            parser.parse(lines)
        return parser.found

    def known(self, group):
        return self.conf if group == "DEFAULT" else self.conf[group]

    def test_each_is_an_option_and_changes_it(self):
        self.conf([], project="nova", default_config_files=[])
        before = {one[:2]: getattr(self.known(one[0]), one[1]) for one in self.settings}
        self.conf([], project="nova", default_config_files=[str(FILE)])
        for group, key, value in self.settings:
            found = getattr(self.known(group), key)
            self.assertNotEqual(before[group, key], found, key)
            self.assertEqual(value, str(found).lower(), key)

    def test_sample_has_what_keystoneauth_and_nova_know(self):
        # Options of the plug-in that auth_type names.
        plugin = {"auth_url", "username", "password", "project_name"}
        plugin |= {"user_domain_name", "project_domain_name"}
        self.conf([], project="nova", default_config_files=[str(SAMPLE)])
        for group, key, _ in self.read(SAMPLE):
            self.assertTrue(key in plugin or key in self.known(group), key)
        names = self.conf.filter_scheduler.weight_classes
        self.assertIn("virtman.openstack.weigher.WarmWeigher", names)

    def test_none_is_there_twice(self):
        keys = [one[:2] for one in self.settings]
        self.assertEqual(len(set(keys)), len(keys))
        self.assertGreater(len(keys), 15)
