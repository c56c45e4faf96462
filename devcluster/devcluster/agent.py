"""What a cloud would do for its cluster: hand out storage, and here also pretend to have GPUs.

Runs as a process of the node. Looks at everything each time anything changes, and every half
minute besides, so that a missed event costs at most that.
"""

from __future__ import annotations

import argparse
import http.client
import threading
import time
from pathlib import Path

from devcluster import fakegpu, network, storage
from devcluster.client import ApiError, Client
from devcluster.console import say
from devcluster.paths import Layout

RESYNC_SECONDS = 30
# Many events come together; one look serves them all.
DEBOUNCE_SECONDS = 0.1
RETRY_SECONDS = 1.0

FAILURES = (OSError, http.client.HTTPException, ApiError, ValueError)


def watch(client: Client, path: str, changed: threading.Event) -> None:
    """Sets `changed` at every change of a collection, for ever."""
    while True:
        try:
            for _ in client.changes(path, seconds=RESYNC_SECONDS):
                changed.set()
        except FAILURES as error:
            say(f"watching {path}: {error}")
            time.sleep(RETRY_SECONDS)
        changed.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fake-gpus", type=int, required=True)
    arguments = parser.parse_args()
    layout = Layout(arguments.home)
    client = Client(network.NODE_ADDRESS, arguments.port, layout.pki, "agent")
    changed = threading.Event()
    for path in (storage.CLAIMS, storage.VOLUMES, "/api/v1/nodes"):
        threading.Thread(target=watch, args=(client, path, changed), daemon=True).start()
    while True:
        changed.wait(timeout=RESYNC_SECONDS)
        time.sleep(DEBOUNCE_SECONDS)
        changed.clear()
        try:
            storage.reconcile(client, layout.volumes)
            fakegpu.reconcile(client, arguments.fake_gpus)
        except FAILURES as error:
            say(f"will try again: {error}")
            time.sleep(RETRY_SECONDS)
            changed.set()


if __name__ == "__main__":
    main()
