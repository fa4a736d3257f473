"""Runs each gabbit, in process and without a network."""

from pathlib import Path

from gabbi import driver

from tests.functional.volt import fixtures
from tests.profiles import ProfileHandler


def load_tests(loader, tests, pattern):
    return driver.build_tests(
        str(Path(__file__).with_name("gabbits")),
        loader,
        test_loader_name=__name__,
        intercept=fixtures.app,
        fixture_module=fixtures,
        content_handlers=[ProfileHandler],
    )
