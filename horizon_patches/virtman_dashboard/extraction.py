"""How "django-admin extract_messages" finds the words of Django's templates.

It asks Babel, which needs to be shown how to read them: Django has what does it.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from babel.messages.extract import extract_javascript
from django.utils.translation.template import templatize


def extract(fileobj: Any, keywords: Any, comment_tags: Any, options: Any) -> Iterator[Any]:
    """Yield what Babel wants to know of each text."""
    # Calls of gettext, and an X for every other character. Scripts may have such words anywhere.
    calls = templatize(fileobj.read().decode())
    return extract_javascript(BytesIO(calls.encode()), keywords, comment_tags, options)
