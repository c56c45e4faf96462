"""What `helm test` runs: is the resource served, and do the processes answer?"""

import json
import os
import ssl
import sys
import time
import urllib.request
from pathlib import Path

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
# Right after an install, pods may still be starting.
PATIENCE_SECONDS = 60


def resource_is_served():
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    token = Path(ACCOUNT, "token").read_text(encoding="utf-8")
    request = urllib.request.Request(
        f"https://{host}:{port}/apis/warmgraph.dev/v1alpha1",
        headers={"Authorization": f"Bearer {token}"},
    )
    trust = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
        names = {found["name"] for found in json.load(answer)["resources"]}
    missing = {f"inferencedeployments{part}" for part in ("", "/status", "/scale")} - names
    if missing:
        raise LookupError(f"the API server does not serve {', '.join(sorted(missing))}")


def answers(url):
    with urllib.request.urlopen(url, timeout=5):
        pass


def check(name, act, *arguments):
    """Try until it works or patience ends; say what happened."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            act(*arguments)
        except (OSError, LookupError) as error:
            if time.monotonic() > end:
                print(f"failed: {name}: {error}", flush=True)
                return False
            time.sleep(1)
        else:
            print(f"ok: {name}", flush=True)
            return True


results = [check("inferencedeployments.warmgraph.dev is served", resource_is_served)]
results += [check(f"{url} answers", answers, url) for url in sys.argv[1:]]
sys.exit(not all(results))
