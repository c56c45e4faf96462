"""`make demo`: warm up, answer, sleep, wake, roll; then the last cold start by stage."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

from demo import install
from demo.console import fail, say, step, table
from demo.environment import prepare
from demo.install import NAMESPACE
from demo.kube import ROOT, Cluster, wait_until
from demo.next_steps import next_steps
from demo.warmup import follow

NAME = "smollm2"
URL = f"http://{NAME}.{NAMESPACE}"
QUESTION = "What is the capital of France?"
WHO = "Who are you?"
MANIFEST = ROOT / "examples" / "01-smollm2.yaml"
SECOND_VERSION = {"spec": {"model": {"uri": "pvc://models/smollm2-135m-v2", "revision": "v2"}}}

START_TIMEOUT_SECONDS = 300
"""A start takes about 15 s here; the bound is for slow machines, and says so when it ends."""


def run() -> None:
    """The whole demo; every step ends the run with a hint if it cannot be shown."""
    began = time.monotonic()
    with step("Cluster and images"):
        cluster = prepare()
    with step("Install the chart"):
        install.chart(cluster)
    with step("Put the models on a volume"):
        install.models(cluster)
    with step(f"kubectl apply -f {MANIFEST.relative_to(ROOT)}, and its warmup bucket by bucket"):
        _apply(cluster)
    with step(f"Ask through the Service: {QUESTION}"):
        _ask(cluster, QUESTION, expect="Paris")
    with step("Leave it idle: it goes to zero"):
        _to_zero(cluster)
    with step(f"Ask at zero: {QUESTION}"):
        _ask(cluster, QUESTION, expect="Paris")
        _show(cluster)
    with step("Roll to version 2 of the model, a pirate, while questions keep coming"):
        _roll(cluster)
    with step("The last cold start, by stage"):
        _cold_start(cluster)
    print(f"\nThe demo took {time.monotonic() - began:.0f} s. {next_steps(NAME)}")


def _resource(cluster: Cluster) -> dict[str, Any]:
    return cluster.get("infd", NAME, "-n", NAMESPACE)


def _condition(resource: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = resource.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def _is(resource: dict[str, Any], kind: str, reason: str | None = None) -> bool:
    """Whether a condition holds for the spec as it is now."""
    condition = _condition(resource, kind)
    return (
        condition.get("status") == "True"
        and condition.get("observedGeneration") == resource["metadata"]["generation"]
        and (reason is None or condition["reason"] == reason)
    )


def _hint() -> str:
    return f"kubectl describe infd {NAME} -n {NAMESPACE}; kubectl get pods -n {NAMESPACE}"


def _apply(cluster: Cluster) -> None:
    manifest = MANIFEST.read_text()
    # A second run starts from the same point: nothing of the first one's is awake.
    cluster.kubectl("delete", "infd", NAME, "-n", NAMESPACE, "--ignore-not-found", "--wait=true")
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=manifest)
    follow(
        cluster,
        namespace=NAMESPACE,
        name=NAME,
        done=lambda: _is(_resource(cluster), "Ready"),
        timeout_seconds=START_TIMEOUT_SECONDS,
        hint=_hint(),
    )
    _show(cluster)


def _show(cluster: Cluster) -> None:
    output = cluster.kubectl("get", "infd", NAME, "-n", NAMESPACE)
    say(output.rstrip().replace("\n", "\n     "))


def _client(mode: str, question: str) -> tuple[str, ...]:
    script = (ROOT / "demo" / "client.py").read_text()
    pod = ("kubectl", "exec", "-i", "client", "-n", NAMESPACE, "--")
    return (*pod, "python3", "-c", script, URL, mode, question)


def _ask(cluster: Cluster, question: str, *, expect: str) -> None:
    answer = json.loads(cluster.run(*_client("once", question)))
    say(f"{answer['status']} after {answer['seconds']:.2f} s: {answer['answer']}")
    if answer["status"] != 200 or expect not in answer["answer"]:
        fail(f"expected an answer with {expect!r}. Look at: {_hint()}")


def _to_zero(cluster: Cluster) -> None:
    idle = _resource(cluster)["spec"]["scaling"]["idleSeconds"]
    say(f"scaling.idleSeconds is {idle}")
    wait_until(
        lambda: (
            _is(_resource(cluster), "Ready", "ScaledToZero")
            and not _resource(cluster)["status"].get("replicas")
        ),
        timeout_seconds=idle + 120,
        what="scaling to zero",
        hint=_hint(),
        poll=1,
    )
    _show(cluster)


def _roll(cluster: Cluster) -> None:
    before = _resource(cluster)["status"]["updatedRevision"]
    questions = cluster.start(*_client("repeat", WHO))
    try:
        cluster.kubectl(
            "patch", "infd", NAME, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(SECOND_VERSION)
        )
        follow(
            cluster,
            namespace=NAMESPACE,
            name=NAME,
            done=lambda: (
                _is(_resource(cluster), "UpToDate")
                and _is(_resource(cluster), "Ready")
                and _resource(cluster)["status"]["currentRevision"] != before
            ),
            timeout_seconds=START_TIMEOUT_SECONDS,
            hint=_hint(),
        )
    finally:
        questions.terminate()
    _report_answers(questions)
    _ask(cluster, WHO, expect="")
    cache = _resource(cluster)["status"]["cache"]
    say(f"graph cache of the new pod: {cache['result']}, field {cache['field'] or '-'}")
    say(f"  {cache['message']}")
    _show(cluster)


def _report_answers(questions: subprocess.Popen[str]) -> None:
    """Count what came back while the pods changed; a failed request ends the demo."""
    assert questions.stdout is not None
    answers = [json.loads(line) for line in questions.stdout if line.endswith("\n")]
    failed = [answer for answer in answers if answer["status"] != 200]
    texts = list(dict.fromkeys(answer["answer"] for answer in answers))
    say(f"{len(answers)} questions answered during the roll, {len(failed)} failed")
    for text in texts:
        say(f"  {sum(a['answer'] == text for a in answers):4d} x {text}")
    if failed:
        fail(f"a question failed during the roll: {failed[0]}")


def _cold_start(cluster: Cluster) -> None:
    start = _resource(cluster)["status"]["coldStart"]
    rows = [
        (stage["name"], f"{stage['startMilliseconds']} ms", f"{stage['milliseconds']} ms")
        for stage in start["stages"]
    ]
    table(("stage", "began", "took"), rows)
    say(f"engine process to warm: {start['totalMilliseconds']} ms")
    say(f"pod created to Ready:   {start['podReadyMilliseconds']} ms  (pod {start['pod']})")
