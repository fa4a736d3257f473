"""Counts the tests in the words of stestr, in which tools/test.sh adds up all parts."""

from django.test.runner import DiscoverRunner


class Runner(DiscoverRunner):
    """Django's own, but for that."""

    def suite_result(self, suite, result, **kwargs):
        """Print how many tests there were of each kind."""
        failed = len(result.failures) + len(result.errors)
        skipped = len(result.skipped)
        print(f" - Passed: {result.testsRun - failed - skipped}")
        print(f" - Failed: {failed}")
        print(f" - Skipped: {skipped}")
        return super().suite_result(suite, result, **kwargs)
