"""Horizon's own settings for tests, with the plug-in."""

from openstack_dashboard.test.settings import *  # noqa: F403

INSTALLED_APPS = ["virtman_dashboard", *INSTALLED_APPS]  # noqa: F405
TEST_RUNNER = "virtman_dashboard.tests.runner.Runner"
