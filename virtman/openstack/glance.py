"""What VirtMan asks of Glance: what an image is, and its bytes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
from keystoneauth1.exceptions import ClientException, NotFound

from virtman.errors import VirtmanError

CHUNK = 1024 * 1024
"""Bytes that come at a time."""

_READY = "active"
_NO_CONTENT = 204
# Seconds without a byte after which Glance is as good as gone.
_SILENCE = 60.0


class ImageGone(VirtmanError):
    """Glance has no such image, or not its bytes: not yet, or not any more."""

    code = "virtman.openstack.image_gone"


class GlanceUnreachable(VirtmanError):
    """Glance does not answer, or with an error of its own: another time it may."""

    code = "virtman.openstack.glance"


@dataclass(frozen=True)
class Image:
    """An image that Glance has.

    :ivar size: bytes of the file that Glance stores, in its format; 0 if Glance does not say
    :ivar hash_algo: how ``hash_value`` is made, as hashlib calls it
    :ivar checksum: MD5, of images that have no better hash
    :ivar places: where its bytes are, as URLs, if Glance tells its users; the best one first
    """

    id: str
    status: str
    disk_format: str
    container_format: str
    size: int
    hash_algo: str | None
    hash_value: str | None
    checksum: str | None
    places: tuple[str, ...]


class Glance:
    """Images that one account sees.

    :param adapter: of keystoneauth, for version 2 of the service type ``image``
    """

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def show(self, image: str) -> Image:
        """Return an image whose bytes can be had.

        :raises ImageGone: if there is none
        :raises GlanceUnreachable: if Glance cannot say
        """
        response = self._get(image, _path(image))
        try:
            found = _image(response.json())
        except (ValueError, KeyError, TypeError) as err:
            raise GlanceUnreachable(
                f"image {image}: what answers is not Glance; check the endpoint of the service "
                "type image"
            ) from err
        if found.status != _READY:
            raise ImageGone(f"image {image} is {found.status} in Glance; it must be {_READY}")
        return found

    def download(self, image: str) -> Generator[bytes, None, None]:
        """Return an image's bytes, a MiB at a time, as Glance stores them.

        :raises ImageGone: if there are none
        :raises GlanceUnreachable: if Glance does not answer, or falls silent on the way
        """
        # Compressed on the way, by a proxy, the length would be that of something else.
        headers = {"Accept-Encoding": "identity"}
        with self._get(image, f"{_path(image)}/file", stream=True, headers=headers) as response:
            if response.status_code == _NO_CONTENT:
                raise ImageGone(f"image {image} has no data in Glance; upload it again")
            done = 0
            try:
                for chunk in response.iter_content(CHUNK):
                    done += len(chunk)
                    yield chunk
            except requests.RequestException as err:
                raise _broken(image, done) from err
            # urllib3 before 2.0 takes the end of a connection for that of the data.
            if done < int(response.headers.get("Content-Length", 0)):
                raise _broken(image, done)

    def _get(self, image: str, path: str, **settings: Any) -> requests.Response:
        try:
            found: requests.Response = self.adapter.get(path, timeout=_SILENCE, **settings)
        except NotFound as err:
            raise ImageGone(f"Glance has no image {image}, or no data of it") from err
        except (ClientException, requests.RequestException) as err:
            raise GlanceUnreachable(
                f"image {image}: Glance does not give it: {err}; check that Glance runs, and "
                "what this account may do"
            ) from err
        return found


def _path(image: str) -> str:
    return f"/images/{quote(image, safe='')}"


def _broken(image: str, done: int) -> GlanceUnreachable:
    return GlanceUnreachable(f"image {image}: the download ended after {done} bytes; try again")


def _places(found: Any) -> Iterator[str]:
    first = found.get("direct_url")
    if first:
        yield first
    yield from (one["url"] for one in found.get("locations") or () if one["url"] != first)


def _image(found: Any) -> Image:
    return Image(
        found["id"],
        found["status"],
        found.get("disk_format") or "",
        found.get("container_format") or "",
        int(found.get("size") or 0),
        found.get("os_hash_algo"),
        found.get("os_hash_value"),
        found.get("checksum"),
        tuple(_places(found)),
    )
