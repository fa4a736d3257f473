"""What the programs of Ceph do, as far as VirtMan needs it; run by the fixture beside."""

import fcntl
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

STATE = "VIRTMAN_FAKE_CEPH"
FSID = "6d3c4a9e-0f0e-4d0b-9f6e-1c5b7a2e8d10"
PIECE = 2**20


class Failed(Exception):
    """A status, and what is said."""


def fsid(state):
    return FSID


def clone(state, feature, snapshot, name):
    if name in state["clones"]:
        raise Failed(17, "File exists")
    if snapshot not in state["snapshots"]:
        raise Failed(2, "error opening parent image")
    state["clones"][name] = snapshot
    return ""


def diff(state, whole, flag, form, snapshot):
    data = Path(state["snapshots"][snapshot]).read_bytes()
    runs = [at for at in range(0, len(data), PIECE) if any(data[at : at + PIECE])]
    return json.dumps([{"offset": at, "length": PIECE, "exists": "true"} for at in runs])


def device_list(state, flag, form):
    found = []
    for path, name in state["mapped"].items():
        pool, image = name.split("/")
        found.append({"pool": pool, "name": image, "snap": "-", "device": path})
    return json.dumps(found)


def device_map(state, read_only, name):
    path = Path(os.environ[STATE]) / f"rbd{len(state['calls'])}"
    path.symlink_to(state["snapshots"][state["clones"][name]])
    state["mapped"][str(path)] = name
    return str(path)


def device_unmap(state, path):
    del state["mapped"][path]
    return ""


def rm(state, quiet, name):
    if name in state["mapped"].values():
        raise Failed(16, "image has watchers")
    if name not in state["clones"]:
        raise Failed(2, "No such file or directory")
    del state["clones"][name]
    return ""


@contextmanager
def locked(folder):
    """Give what there is in a folder, and keep what becomes of it; one at a time."""
    file, part = folder / "state", folder / "state.part"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        state = json.loads(file.read_text()) if file.exists() else {}
        try:
            yield state
        finally:
            part.write_text(json.dumps(state))
            part.rename(file)


def main(program, conf, path, account, user, word, *words):
    assert (conf, account) == ("--conf", "--id"), (path, user)
    with locked(Path(os.environ[STATE])) as state:
        do(program, word, words, state)


def do(program, word, words, state):
    call = " ".join([program, word, *words])
    state["calls"].append(call)
    if word == "device":
        word, *words = f"device_{words[0]}", *words[1:]
    try:
        for begin, status in state["fails"].items():
            if call.startswith(begin):
                raise Failed(status, "it does not work")
        print(globals()[word](state, *words))
    except Failed as err:
        status, said = err.args
        print(f"{program}: {said}", file=sys.stderr)
        sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
