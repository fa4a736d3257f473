"""A disk that forgets: blocks of an image, wherever a node's cache device holds them."""

BLOCK = 4096

# Overwrites blocks wherever a disk holds them; they are known by how they begin.
ROT = """
import sys
wanted = {bytes.fromhex(word) for word in sys.argv[2:]}
with open(sys.argv[1], "r+b") as disk:
    place = 0
    while piece := disk.read(1 << 20):
        for at in range(0, len(piece) if any(piece[::4096]) else 0, 4096):
            block = piece[at:at + 4096]
            if block[:32] in wanted:
                disk.seek(place + at)
                disk.write(block[::-1])
        place += len(piece)
        disk.seek(place)
"""


def rot(node, disk, content, offsets):
    """Overwrite these blocks of an image in the node's cache, and have nothing else keep them.

    :param content: of the image
    """
    heads = [content[at : at + 32].hex() for at in offsets]
    node.run(["python3", "-c", ROT, disk, *heads], timeout=120)
    node.run(["sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"])
