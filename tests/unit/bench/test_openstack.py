"""What a bench of OpenStack makes of logs and runs."""

import testtools

from bench import tables
from bench.openstack import FIGURES, attempted, ratios, requests_in
from bench.results import Results
from lab.errors import LabError

LINE = (
    "[pid: 3721|app: 0|req: 8/8] {} () {{32 vars in 653 bytes}} [Wed Sep  2 03:45:54 2026] "
    "{} {} => generated 2092 bytes in 171 msecs (HTTP/1.1 200) 7 headers in 287 bytes\n"
)


class RequestsTest(testtools.TestCase):
    def test_lines_about_requests_are_told_from_others(self):
        log = "spawned uWSGI worker 1\n" + LINE.format("10.78.0.1", "GET", "/v2/images/1/file")
        log += "GET /v2 => by hand\n" + LINE.format("10.78.0.2", "PATCH", "/v2/images/1")
        expected = [
            ("10.78.0.1", "GET", "/v2/images/1/file"),
            ("10.78.0.2", "PATCH", "/v2/images/1"),
        ]
        self.assertEqual(expected, requests_in(log))


class RatiosTest(testtools.TestCase):
    def test_what_is_there_is_compared(self):
        runs = [
            {"mode": mode, "image": image, "last_active_s": active, "last_ready_s": 2 * active}
            for mode, image, active in (
                ("stock-image", "new", 100.0),
                ("driver", "new", 40.0),
                ("driver", "warm", 12.0),
                ("libvirt", "warm", 10.0),
            )
        ]
        first = {
            "driver_over_stock_image_new_active": 0.4,
            "driver_over_stock_image_new_ready": 0.4,
        }
        alone = {
            "driver_over_libvirt_warm_active": 1.2,
            "driver_over_libvirt_warm_ready": 1.2,
        }
        self.assertEqual(first | alone, ratios(runs))
        self.assertEqual(first, ratios(runs[:3]))
        self.assertEqual({}, ratios(runs[:1]))


class FailedTest(testtools.TestCase):
    def run_of(self, image, **more):
        figures = dict.fromkeys(FIGURES, 1.0)
        return {"mode": "driver", "servers": 4, "image": image, "left": [], **figures, **more}

    def runs(self):
        """Yield one run, and fail."""
        yield self.run_of("new")
        raise LabError("server 3 is in ERROR")

    def failed(self, err):
        return self.run_of("warm", **dict.fromkeys(FIGURES), failed=str(err))

    def test_what_was_measured_stays_and_the_last_run_says_why_there_are_no_more(self):
        runs = list(attempted(self.runs(), self.failed))
        self.assertEqual([1.0, None], [one["last_active_s"] for one in runs])
        (table,) = tables.tables(Results("openstack", None, runs))
        self.assertEqual(["driver, warm failed: server 3 is in ERROR"], table.wrong)
        self.assertEqual({"4", "-"}, {line[2] for line in table.lines})

    def test_a_run_that_failed_is_compared_with_nothing(self):
        alone = self.run_of("warm", mode="libvirt")
        runs = [*attempted(self.runs(), self.failed), alone]
        self.assertEqual({}, ratios(runs))

    def test_a_mistake_of_the_bench_itself_ends_it(self):
        def runs():
            raise KeyError("mode")
            yield

        self.assertRaises(KeyError, list, attempted(runs(), self.failed))
