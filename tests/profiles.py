"""Boot profiles as agents write them."""

import hashlib

from gabbi.handlers.base import ContentHandler

ROOT_HASH = "0123456789abcdef" * 4
SIZE = 1024 * 1024
UPPER_HASHES = bytes(4096)  # as many as an image of that size has


def profile(content=b"pieces", root_hash=ROOT_HASH, version=2):
    """Return a profile; agents alone know what its content says."""
    checksum = hashlib.sha256(content).digest()
    return b"VMBP" + bytes([version]) + bytes.fromhex(root_hash) + checksum + content


def tag(content=b"pieces"):
    """Return the ETag of such a profile, without quotes."""
    return hashlib.sha256(content).hexdigest()


class ProfileHandler(ContentHandler):
    """Lets a gabbit send a profile: it gives the content, how often, and what is cut off."""

    test_key_suffix = "profile"  # gabbi asks for one

    @staticmethod
    def accepts(content_type):
        return content_type == "application/octet-stream"

    @staticmethod
    def dumps(data, pretty=False, test=None):
        if isinstance(data, bytes):  # gabbi asks twice
            return data
        content = data["content"].encode() * data.get("times", 1)
        made = profile(content, data.get("root_hash", ROOT_HASH))
        return made[: len(made) - data.get("cut", 0)]
