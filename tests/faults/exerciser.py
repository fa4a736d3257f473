"""A file system exerciser: ``python3 exerciser.py FOLDER COPY SECONDS SEED``.

FOLDER holds some files, and COPY the same ones.
Does what programs do to files, in random order: writes, writes through a mapping, appends, holes,
truncation, renaming, syncing, reading back. What each file must hold is kept in memory, and
compared with what the file system says, past its caches now and then. Prints the number of
operations; the first difference or error ends it with a traceback.
"""

import mmap
import os
import random
import subprocess
import sys
import time

LARGEST = 3 << 20


class Exerciser:
    """The files of one folder, and what they must hold."""

    def __init__(self, folder, copy, seed):
        self.folder = folder
        self.random = random.Random(seed)
        self.files = {}
        for name in sorted(os.listdir(copy)):
            with open(os.path.join(copy, name), "rb") as file:
                self.files[name] = bytearray(file.read())
        self.names = list(self.files)
        self.verbs = (
            self.write, self.write, self.append, self.write_mapped, self.truncate, self.punch,
            self.rename, self.read, self.read, self.read_all, self.sync, self.drop_caches,
        )  # fmt: skip

    def step(self):
        """Do one thing to one file."""
        name = self.random.choice(self.names)
        if name not in self.files:
            with open(self.path(name), "xb"):
                self.files[name] = bytearray()
        self.random.choice(self.verbs)(name)

    def path(self, name):
        return os.path.join(self.folder, name)

    def span(self, name, most=256 << 10):
        """Some part of a file that is there."""
        size = len(self.files[name])
        begin = self.random.randrange(size + 1)
        return begin, min(size, begin + self.random.randrange(most))

    def write(self, name):
        begin = self.random.randrange(min(len(self.files[name]) + 64 * 1024, LARGEST))
        data = self.random.randbytes(self.random.randrange(1, 128 << 10))
        content = self.files[name]
        content.extend(bytes(max(0, begin - len(content))))
        content[begin : begin + len(data)] = data
        with open(self.path(name), "r+b", buffering=0) as file:
            assert os.pwrite(file.fileno(), data, begin) == len(data)

    def append(self, name):
        if len(self.files[name]) < LARGEST:
            data = self.random.randbytes(self.random.randrange(1, 64 << 10))
            self.files[name] += data
            with open(self.path(name), "ab") as file:
                file.write(data)

    def write_mapped(self, name):
        begin, end = self.span(name)
        if begin < end:
            data = self.random.randbytes(end - begin)
            self.files[name][begin:end] = data
            with open(self.path(name), "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                memory[begin:end] = data
                if self.random.random() < 0.5:
                    memory.flush()

    def truncate(self, name):
        size = self.random.randrange(min(len(self.files[name]) * 3 // 2 + 2, LARGEST))
        content = self.files[name]
        del content[size:]
        content.extend(bytes(size - len(content)))
        os.truncate(self.path(name), size)

    def punch(self, name):
        begin, end = self.span(name)
        if begin < end:
            self.files[name][begin:end] = bytes(end - begin)
            subprocess.run(["fallocate", "--punch-hole", "--offset", str(begin), "--length",
                            str(end - begin), self.path(name)], check=True)  # fmt: skip

    def rename(self, name):
        other = self.random.choice(self.names)
        os.rename(self.path(name), self.path(other))
        self.files[other] = self.files.pop(name)

    def read(self, name):
        begin, end = self.span(name)
        with open(self.path(name), "rb") as file:
            self.compare(name, os.pread(file.fileno(), end - begin, begin), begin, end)

    def read_all(self, name):
        with open(self.path(name), "rb") as file:
            self.compare(name, file.read(), 0, len(self.files[name]))

    def sync(self, name):
        with open(self.path(name), "rb") as file:
            os.fsync(file.fileno())

    def drop_caches(self, name):
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3")

    def compare(self, name, found, begin, end):
        expected = self.files[name][begin:end]
        if found != expected:
            at = next((n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
                      min(len(found), len(expected)))  # fmt: skip
            raise AssertionError(f"{name}: differs at {begin + at} of {begin}..{end}")


def main(folder, copy, seconds, seed):
    """Exercise for so long, then compare all files."""
    exerciser, count = Exerciser(folder, copy, int(seed)), 0
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        exerciser.step()
        count += 1
    exerciser.drop_caches("")
    for name in exerciser.files:
        exerciser.read_all(name)
    print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
