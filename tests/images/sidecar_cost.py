"""Runs in a pod: what a sidecar costs from its start until it listens. Prints JSON."""

import json
import resource
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

# A hundred times what it takes on an idle machine.
PATIENCE_SECONDS = 60


def answers() -> bool:
    try:
        urllib.request.urlopen("http://127.0.0.1:8081/healthz", timeout=5).close()
    except urllib.error.URLError:
        return False
    return True


def main() -> None:
    socket = Path(tempfile.mkdtemp(), "report.sock")
    began = time.monotonic()
    process = subprocess.Popen(["warmgraph-sidecar", "--report-socket", str(socket)])
    while not answers():
        if time.monotonic() > began + PATIENCE_SECONDS:
            raise SystemExit(f"no answer within {PATIENCE_SECONDS} s")
        time.sleep(0.005)
    seconds = time.monotonic() - began
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (resident,) = (line.split()[1] for line in status if line.startswith("VmRSS:"))
    process.kill()
    process.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "seconds": round(seconds, 3),
                "processor_seconds": round(used.ru_utime + used.ru_stime, 3),
                "memory_megabytes": round(int(resident) * 1024 / 1e6, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
