"""The setting VIRTMAN."""

import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.test import SimpleTestCase, override_settings

from virtman_dashboard import conf


class ConfTest(SimpleTestCase):
    def test_all_of_it_may_be_left_out(self):
        self.assertEqual(conf.Settings(), conf.load())

    @override_settings(VIRTMAN={"volume_type": "golden"})
    def test_what_is_set_counts(self):
        self.assertEqual("golden", conf.load().volume_type)

    @override_settings(VIRTMAN={"volumetype": "golden"})
    def test_a_misspelt_key_is_an_error(self):
        with self.assertRaisesMessage(ImproperlyConfigured, "VIRTMAN has no volumetype"):
            conf.load()

    def test_a_token_may_be_replaced_at_any_time(self):
        with tempfile.NamedTemporaryFile("w") as file:
            settings = conf.Settings(token_file=file.name)
            for token in ("first", "second"):
                Path(file.name).write_text(f"{token}\n")
                self.assertEqual(token, settings.token())
