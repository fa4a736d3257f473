"""Keeps what schemathesis invents on this machine, and from waiting long.

Volt connects to the source of an image, and holds answers back for as long as it is asked to. What
Volt has to refuse stays as it is.
"""

import ipaddress
import os

import schemathesis


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict) and isinstance(source := body.get("source"), dict):
        if _is_address(source.get("ip")):
            source["ip"] = "127.0.0.1"
        if type(source.get("port")) is int and 0 < source["port"] < 65536:
            source["port"] = int(os.environ["SOURCE_PORT"])
    return body


@schemathesis.hook
def map_query(context, query):
    if query and isinstance(query.get("wait"), int) and 0 < query["wait"] <= 60:
        query["wait"] = 1
    return query


def _is_address(value):
    try:
        return isinstance(value, str) and bool(ipaddress.ip_address(value))
    except ValueError:
        return False
