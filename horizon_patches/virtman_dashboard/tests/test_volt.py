"""What is asked of Volt, over HTTP, and what becomes of its answers."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from django.core.cache import cache
from django.test import SimpleTestCase, override_settings

from virtman_dashboard.volt import Volt, VoltError


class StandIn(BaseHTTPRequestHandler):
    """Says what it was told to say, by path."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Authorization"]))
        status, content = self.server.answers.get(self.path, (404, None))
        if self.headers["If-None-Match"] == "W/1":
            status = 304
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("ETag", "W/1")
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        if status != 304:
            self.wfile.write(body)

    def log_message(self, *args):
        pass


@override_settings(CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}})
class VoltTest(SimpleTestCase):
    def setUp(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
        self.server.answers, self.server.asked = {}, []
        thread = Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(cache.clear)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.volt = Volt(self.url + "/", "token-of-the-test", verify=True, timeout=5)

    def say(self, path, content, status=200):
        self.server.answers[path] = (status, content)

    def assert_refused(self, status, text):
        with self.assertRaises(VoltError) as raised:
            self.volt.trees("a", None)
        self.assertEqual(status, raised.exception.status)
        self.assertIn(text, str(raised.exception))

    def test_lists_come_page_by_page_with_the_token(self):
        self.say("/v1/images?limit=1000", {"images": [{"name": "a"}], "next": "a&b"})
        self.say("/v1/images?limit=1000&marker=a%26b", {"images": [{"name": "b"}], "next": None})
        self.assertEqual([{"name": "a"}, {"name": "b"}], self.volt.images())
        self.assertEqual({"Bearer token-of-the-test"}, {token for _, token in self.server.asked})

    def test_trees_that_are_known_are_not_sent_again(self):
        self.say("/v1/images/a/trees", {"trees": []})
        self.assertEqual(({"trees": []}, "W/1"), self.volt.trees("a", None))
        self.assertEqual((None, "W/1"), self.volt.trees("a", "W/1"))

    def test_names_are_no_paths(self):
        self.say("/v1/images/..%2Fhosts/trees", {"trees": []})
        self.volt.trees("../hosts", None)

    def test_volt_s_words_reach_the_user(self):
        error = {"error": {"code": "volt.image.unknown", "message": "there is no image a"}}
        self.say("/v1/images/a/trees", error, 404)
        self.assert_refused(404, "there is no image a")

    def test_a_token_that_volt_refuses_does_not_end_the_session(self):
        for status in (401, 403):
            self.say("/v1/images/a/trees", {"error": {"message": "not you"}}, status)
            self.assert_refused(403, "not you")

    def test_what_is_no_answer_of_volt_s_is_not_passed_on(self):
        self.say("/v1/images/a/trees", b"<html>a proxy</html>", 500)
        self.assert_refused(502, "makes no sense")

    def test_redirects_are_not_followed(self):
        self.say("/v1/images/a/trees", None, 302)
        self.say("/elsewhere", {"trees": []})
        with self.assertRaises(VoltError):
            self.volt.trees("a", None)
        self.assertEqual(1, len(self.server.asked))

    def test_whether_volt_answers_is_believed_for_a_while(self):
        self.say("/healthz", {"status": "ok"})
        self.assertTrue(self.volt.answers())
        self.say("/healthz", {}, 503)
        self.assertTrue(self.volt.answers())
        cache.clear()
        self.assertFalse(self.volt.answers())
        self.assertEqual(2, len(self.server.asked))

    def test_no_answer_is_an_error_with_its_own_status(self):
        self.volt = Volt("http://127.0.0.1:1", "token", verify=True, timeout=1)
        self.assertFalse(self.volt.answers())
        self.assert_refused(503, "does not answer")
