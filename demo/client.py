"""Runs inside the cluster, in the demo's client pod: asks the model through its Service.

Called as `python - URL once QUESTION` or `python - URL repeat COUNT PAUSE QUESTION`, this file
on standard input. Prints one line of JSON for each answer. Standard library only.
"""

import json
import sys
import time
import urllib.request


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
    url, mode, *rest = sys.argv[1:]
    count, pause, question = (
        (1, 0.0, rest[0])
        if mode == "once"
        else (
            int(rest[0]),
            float(rest[1]),
            rest[2],
        )
    )
    for _ in range(count):
        print(json.dumps(ask(url, question)), flush=True)
        time.sleep(pause)


main()
