"""The clients that people have: the openai package, curl, kubectl."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import openai
import pytest

from demo.kube import wait_until
from tests.cluster.deployment import Deployment
from warmgraph_api import ports

Deploy = Callable[..., Deployment]
PARIS = "What is the capital of France?"


@pytest.fixture(scope="module")
def deployment(deploy: Deploy) -> Deployment:
    made = deploy("clients", scaling={"autoscaler": "None", "minReplicas": 0, "maxReplicas": 1})
    made.wait("Ready")
    return made


@pytest.fixture(scope="module")
def forwarded(deployment: Deployment) -> Iterator[str]:
    """Base URL on loopback, by `kubectl port-forward` to the Service."""
    process = deployment.cluster.start(
        "kubectl", "port-forward", "-n", deployment.namespace, f"svc/{deployment.name}", ":80",
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()  # Forwarding from 127.0.0.1:PORT -> 8000
    yield f"http://{line.split()[2]}"
    process.terminate()
    process.wait(timeout=10)


def test_the_openai_client_chats_and_streams(forwarded: str) -> None:
    client = openai.OpenAI(base_url=f"{forwarded}/v1", api_key="unused", max_retries=0)
    assert [model.id for model in client.models.list()] == ["smollm2"]
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "user", "content": PARIS}
    ]
    whole = client.chat.completions.create(
        model="smollm2", messages=messages, max_tokens=24, temperature=0
    )
    assert "Paris" in (whole.choices[0].message.content or "")

    chunks = list(
        client.chat.completions.create(
            model="smollm2",
            messages=messages,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage


def test_the_openai_client_gets_its_own_error_types(forwarded: str) -> None:
    client = openai.OpenAI(base_url=f"{forwarded}/v1", api_key="unused", max_retries=0)
    with pytest.raises(openai.NotFoundError, match="nothing-like-it"):
        client.completions.create(model="nothing-like-it", prompt="Hello", max_tokens=1)
    with pytest.raises(openai.BadRequestError, match="maximum"):
        client.completions.create(model="smollm2", prompt="many words " * 5000, max_tokens=1)
    assert client.completions.create(model="smollm2", prompt="Hello", max_tokens=1).choices


def test_plain_curl_gets_an_answer(forwarded: str) -> None:
    body = {"model": "smollm2", "prompt": "The capital of France is", "max_tokens": 4}
    command = ["curl", "-sS", "--fail", "--max-time", "60", f"{forwarded}/v1/completions"]
    command += ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert json.loads(output)["choices"][0]["text"]


def test_kubectl_shows_what_matters_in_one_line(deployment: Deployment) -> None:
    header, row = deployment.kubectl("get", "infd", deployment.name).splitlines()
    assert {"NAME", "READY", "REPLICAS", "AGE"} <= set(header.split())
    assert deployment.name in row and "True" in row


def test_kubectl_describe_tells_the_story_in_events(deployment: Deployment) -> None:
    text = deployment.kubectl("describe", "infd", deployment.name)
    assert "GraphCache" in text, text[-3000:]


def test_a_person_looks_into_the_graph_cache_of_a_pod(deployment: Deployment) -> None:
    """docs/graph-cache.md says how; `prune` leaves what the pod uses."""
    pod = deployment.awake()["metadata"]["name"]

    def cache(action: str, *arguments: str) -> str:
        where = ["-n", deployment.namespace, pod, "-c", "engine"]
        command = ["warmgraph", "cache", action, ports.CACHE_DIRECTORY, *arguments]
        return deployment.cluster.kubectl("exec", *where, "--", *command)

    wait_until(
        lambda: f"{deployment.namespace}.{deployment.name}@" in cache("ls"),
        timeout_seconds=60,
        what="an entry that this deployment uses",
        hint=f"kubectl logs {pod} -c engine",
    )
    key = deployment.status["cache"]["key"]
    assert f"{key[:12]}  ok" in cache("verify")
    assert "model_weights_digest" in cache("show", key[:12])
    cache("prune", "--max-size", "0")
    assert key[:12] in cache("ls")
