"""What the application does that a gabbit cannot show."""

import json

from tests.functional.volt.base import TestCase

LIMIT = 1024 * 1024


class TestBodySize(TestCase):
    def put(self, body, **environ):
        client = self.ground.client()
        return client.put("/v1/hosts/a/heartbeat", data=body, environ_overrides=environ)

    def test_a_body_of_the_limit_is_read(self):
        body = json.dumps({"images": {}}).ljust(LIMIT)
        assert self.put(body).status_code == 200

    def test_a_larger_body_is_refused_even_if_it_does_not_tell_its_length(self):
        body = json.dumps({"images": {}}).ljust(LIMIT + 5)
        chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
        for environ in ({}, chunked):
            answer = self.put(body, **environ)
            assert answer.status_code == 413
            assert answer.json["error"]["code"] == "volt.request.too_large"


class TestFaults(TestCase):
    def test_a_fault_of_volt_itself_is_json_too_and_tells_no_internals(self):
        with self.ground.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE placements")
        with self.assertLogs("volt.api.app", "ERROR"):
            answer = self.ground.client().get("/v1/images")
        assert answer.status_code == 500
        assert answer.json["error"]["code"] == "volt.internal"
        assert "placements" not in answer.json["error"]["message"]
