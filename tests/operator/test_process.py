"""Flags, health, and what pods and activators are asked."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from tests.operator.builders import pod, state
from warmgraph_api import ports
from warmgraph_operator.config import parse
from warmgraph_operator.health import application
from warmgraph_operator.logs import JsonFormatter
from warmgraph_operator.metrics import Metrics
from warmgraph_operator.reports import HttpPodReader

IMAGES = ["--engine-image=e", "--sidecar-image=s"]


def test_a_flag_wins_over_a_variable_and_that_over_the_default() -> None:
    assert parse(IMAGES, {}).resync_seconds == 30
    assert parse(IMAGES, {"WARMGRAPH_RESYNC_SECONDS": "45"}).resync_seconds == 45
    both = parse([*IMAGES, "--resync-seconds=60"], {"WARMGRAPH_RESYNC_SECONDS": "45"})
    assert both.resync_seconds == 60


def test_namespaces_come_one_by_one_or_as_a_list() -> None:
    assert parse(IMAGES, {}).namespaces == ()
    assert parse(IMAGES, {"WARMGRAPH_NAMESPACES": "a,b"}).namespaces == ("a", "b")
    assert parse([*IMAGES, "--namespace=c", "--namespace=d"], {}).namespaces == ("c", "d")


def test_an_empty_group_is_none_and_zero_is_zero() -> None:
    assert parse([*IMAGES, "--pod-fs-group="], {}).pod_fs_group is None
    assert parse([*IMAGES, "--pod-fs-group=0"], {}).pod_fs_group == 0
    assert parse(IMAGES, {}).pod_fs_group == 65532


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sidecar-image=s"], "--engine-image is required"),
        ([*IMAGES, "--resync-seconds=0"], "--resync-seconds must be between"),
        ([*IMAGES, "--pod-fs-group=staff"], "must be a group id or empty, not 'staff'"),
        ([*IMAGES, "--log-format=xml"], "invalid choice"),
    ],
)
def test_a_bad_setting_is_refused_with_its_reason(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments, {})
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


async def test_health_says_why_a_restart_is_needed() -> None:
    trouble = ""
    app = application(Metrics(), trouble=lambda: trouble, ready=lambda: not trouble)
    async with TestClient(TestServer(app)) as client:
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/readyz")).status == 200
        trouble = "the watch is silent"
        answer = await client.get("/healthz")
        assert (answer.status, await answer.text()) == (503, "the watch is silent")
        assert (await client.get("/readyz")).status == 503
        metrics = await (await client.get("/metrics")).text()
        assert "warmgraph_operator_reconcile_seconds" in metrics


def test_a_log_line_is_one_json_object() -> None:
    record = logging.LogRecord("name", logging.INFO, "file", 1, "a\n%s", ("b",), None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert msgspec.json.decode(line)["message"] == "a\nb"


# --- asking pods


@pytest.fixture
async def answers(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Any]]:
    """Sidecar and activator at once, on 127.0.0.1; a test says what each path answers."""
    given: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        value = given[request.path]
        return value if isinstance(value, web.Response) else web.Response(body=value)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    server = TestServer(app)
    await server.start_server()
    monkeypatch.setattr(ports, "SIDECAR_PORT", server.port)
    monkeypatch.setattr(ports, "ACTIVATOR_ADMIN_PORT", server.port)
    given["port"] = server.port
    yield given
    await server.close()


@pytest.fixture
async def reader() -> AsyncIterator[HttpPodReader]:
    async with aiohttp.ClientSession() as session:
        yield HttpPodReader(session)


async def test_a_pod_is_asked_for_its_state(answers: dict[str, Any], reader: HttpPodReader) -> None:
    answers["/warmup"] = msgspec.json.encode(state())
    assert await reader.states((pod(podIP="127.0.0.1"),)) == {"tiny-1": state()}


async def test_a_pod_whose_engine_does_not_run_yet_is_asked_once_its_sidecar_does(
    answers: dict[str, Any], reader: HttpPodReader
) -> None:
    answers["/warmup"] = msgspec.json.encode(state())
    place: dict[str, Any] = {"podIP": "127.0.0.1", "phase": "Pending"}
    early = pod(**place)
    assert await reader.states((early,)) == {}
    running = [{"name": "sidecar", "state": {"running": {}}}]
    assert len(await reader.states((pod(**place, initContainerStatuses=running),))) == 1


@pytest.mark.parametrize(
    "answer", [b"", b"not json", b'{"ready": "maybe"}', web.Response(status=500)]
)
async def test_a_pod_that_answers_nonsense_is_left_out(
    answers: dict[str, Any], reader: HttpPodReader, answer: Any
) -> None:
    answers["/warmup"] = answer
    assert await reader.states((pod(podIP="127.0.0.1"),)) == {}


async def test_a_pod_that_is_not_there_is_left_out(reader: HttpPodReader) -> None:
    assert await reader.states((pod(podIP=None), pod("tiny-2", podIP="127.0.0.1"))) == {}


async def test_activators_say_what_they_hold_and_for_whom(
    answers: dict[str, Any], reader: HttpPodReader
) -> None:
    answers["/queues"] = b'[{"namespace": "a", "name": "b", "held": 3, "more": 1}]'
    answers["/.warmgraph/ready"] = b'{"namespace": "a", "name": "b"}'
    assert await reader.queues("127.0.0.1") == {("a", "b"): 3}
    assert await reader.answers_for("127.0.0.1", answers["port"]) == ("a", "b")
    answers["/queues"] = b"[]"
    assert await reader.queues("127.0.0.1") == {}
    answers["/queues"] = web.Response(status=503)
    assert await reader.queues("127.0.0.1") is None
