"""A disk that forgets: blocks of an image, wherever a node's cache device holds them."""

import json

BLOCK = 4096

# Overwrites blocks wherever a disk holds them; they are known by how they begin. It reads past the
# page cache: a node has less memory than its disk, and would hardly answer meanwhile.
ROT = """
import mmap, os, sys
wanted = {bytes.fromhex(word) for word in sys.argv[2:]}
disk = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
piece, wrong, place = mmap.mmap(-1, 1 << 20), mmap.mmap(-1, 4096), 0
while length := os.preadv(disk, [piece], place):
    for at in range(0, length if any(piece[::4096]) else 0, 4096):
        block = piece[at:at + 4096]
        if block[:32] in wanted:
            wrong[:] = block[::-1]
            os.pwritev(disk, [wrong], place + at)
    place += length
"""


def rot(node, disk, content, offsets):
    """Overwrite these blocks of an image in the node's cache, and have nothing else keep them.

    :param content: of the image
    """
    heads = [content[at : at + 32].hex() for at in offsets]
    node.run(["python3", "-c", ROT, disk, *heads], timeout=120)
    node.drop_caches()


class Rotting:
    """For cases with a node whose cache device forgets."""

    def rot(self, node, disk, offsets):
        """Overwrite these blocks of the image in the node's cache; return those that it had.

        A cache may not have kept all, and may have copies that it does not use any more.
        """
        right = (self.bed.folder / "image").read_bytes()
        rot(node, disk, right, offsets)
        device = f"/dev/mapper/virtman_{self.image}_image"
        node.run(["dd", f"if={device}", "of=/host/image", "bs=1M", "iflag=direct"], timeout=120)
        cached = (node.share / "image").read_bytes()
        wrong = [at for at in range(0, self.size, BLOCK)
                 if cached[at : at + BLOCK] != right[at : at + BLOCK]]  # fmt: skip
        self.assertTrue(wrong)
        self.assertEqual([], [at for at in wrong if at not in offsets])
        return wrong

    def scrub(self, node):
        """Have the node's cache compared; return where it was wrong."""
        done = self.virtman(node, "image", "scrub", "--json", self.image, timeout=120)
        return json.loads(done.stdout)["dropped"]
