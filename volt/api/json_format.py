"""How Volt writes JSON: without spaces, times in ISO 8601."""

import json
from dataclasses import is_dataclass
from datetime import datetime
from typing import Any

from flask.json.provider import JSONProvider


def plain(value: Any) -> Any:
    """Return what JSON has for a dataclass or a time."""
    if is_dataclass(value):
        return vars(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no form in JSON")


text = json.JSONEncoder(default=plain, separators=(",", ":")).encode


class Provider(JSONProvider):
    """Has the framework write it so, too."""

    def dumps(self, obj: Any, **settings: Any) -> str:
        """Return the text of an object."""
        return text(obj)

    def loads(self, s: str | bytes, **settings: Any) -> Any:
        """Return the object of a text."""
        return json.loads(s)
