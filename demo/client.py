"""Runs inside the cluster, in the demo's client pod: asks the model through its Service.

Called as `python -c FILE URL once|repeat QUESTION`. Prints one line of JSON for each answer; repeat
goes on until standard input ends, which it does when the `kubectl exec` that started it is gone.
Standard library only.
"""

import json
import select
import sys
import time
import urllib.request

PAUSE_SECONDS = 0.5


def ask(url: str, question: str) -> dict[str, object]:
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 24,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            answer = json.load(response)["choices"][0]["message"]["content"].strip()
            status = response.status
    except urllib.error.HTTPError as error:
        answer, status = error.read().decode(errors="replace")[:300], error.code
    except OSError as error:
        answer, status = str(error), 0
    return {"status": status, "seconds": round(time.monotonic() - began, 3), "answer": answer}


def main() -> None:
    url, mode, question = sys.argv[1:]
    print(json.dumps(ask(url, question)), flush=True)
    while mode == "repeat" and not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        print(json.dumps(ask(url, question)), flush=True)


main()
