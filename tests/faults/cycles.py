"""Creates and destroys VMs' devices in a node: ``python3 cycles.py IMAGE N WIDTH``.

N cycles, WIDTH of them at a time. Prints JSON: the seconds of the longest cycle, of all, and the
errors.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from virtman.api.client import Client

SOCKET = "/run/virtman/agent.sock"


def main(image, count, width):
    """Run the cycles."""
    client, begin = Client(SOCKET), time.monotonic()

    def cycle(number):
        began = time.monotonic()
        try:
            client.create(f"cycle{number}", image)
            client.destroy(f"cycle{number}")
        except Exception as err:
            return time.monotonic() - began, f"{type(err).__name__}: {err}"
        return time.monotonic() - began, ""

    with ThreadPoolExecutor(int(width)) as pool:
        done = list(pool.map(cycle, range(int(count))))
    print(json.dumps({
        "longest": max(took for took, _ in done),
        "seconds": time.monotonic() - begin,
        "errors": [error for _, error in done if error],
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
