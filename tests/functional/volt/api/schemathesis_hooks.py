"""Keeps what schemathesis invents on this machine, and from waiting long.

Volt connects to the source of an image, and holds answers back for as long as it is asked to.
"""

import os

import schemathesis


@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict) and isinstance(body.get("source"), dict):
        source = {"ip": "127.0.0.1", "port": int(os.environ["SOURCE_PORT"])}
        body["source"] |= {name: source[name] for name in source.keys() & body["source"].keys()}
    return body


@schemathesis.hook
def map_query(context, query):
    if query and isinstance(query.get("wait"), int) and 0 < query["wait"] <= 60:
        query["wait"] = 1
    return query
