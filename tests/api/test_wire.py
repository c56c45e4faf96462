"""The lines between engine and sidecar."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmgraph_api import wire
from warmgraph_api.report import (
    Bucket,
    BucketMode,
    BucketState,
    Cache,
    CacheResult,
    Check,
    CheckState,
    Fault,
    Load,
    PodState,
    Span,
    Stage,
    StepKind,
    WarmupReport,
)

FULL = WarmupReport(
    boot_id="b-1",
    sequence=7,
    progress=3,
    stage=Stage.CAPTURING,
    message="decode 4",
    model="smollm2",
    revision="v1",
    started_at=1_750_000_000.25,
    ready_seconds=12.5,
    buckets=[
        Bucket(
            kind=StepKind.DECODE,
            size=4,
            mode=BucketMode.EAGER,
            state=BucketState.CAPTURED,
            seconds=0.5,
            bytes=1 << 20,
        ),
        Bucket(
            kind=StepKind.PREFILL,
            size=64,
            mode=BucketMode.LAZY,
            state=BucketState.FALLBACK,
            reason="out of memory",
        ),
    ],
    cache=Cache(result=CacheResult.REFUSED, key="k", field="dtype", message="float32, bfloat16"),
    check=Check(state=CheckState.PASSED),
    timeline=[Span(name="LoadingModel", start_seconds=0.5, seconds=4.0)],
    load=Load(running=2, waiting=1, requests_total=9),
    fault=Fault(reason="EngineFault", message="CUDA error"),
)

SMALLEST: dict[str, Any] = {
    "bootId": "b-1",
    "sequence": 0,
    "progress": 0,
    "stage": "Starting",
    "startedAt": 1.0,
}


def test_a_report_arrives_as_it_was_sent() -> None:
    line = wire.encode_line(FULL)
    assert wire.decode_report(line) == FULL


def test_a_message_is_one_line() -> None:
    line = wire.encode_line(msgspec.structs.replace(FULL, message="two\nlines"))
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


def test_a_drain_command_arrives() -> None:
    line = wire.encode_line(wire.Command(name=wire.CommandName.DRAIN))
    assert json.loads(line) == {"name": "drain"}
    assert wire.decode_command(line).name is wire.CommandName.DRAIN


def test_a_report_needs_no_more_than_what_every_start_knows() -> None:
    report = wire.decode_report(json.dumps(SMALLEST).encode())
    assert report.stage is Stage.STARTING
    assert report.buckets == []
    assert report.cache.result is CacheResult.PENDING
    assert report.load.in_flight == 0
    assert report.fault is None


def test_a_newer_engine_is_understood_by_an_older_sidecar() -> None:
    newer = SMALLEST | {
        "powerDraw": 300,
        "load": {"running": 1, "paused": 2},
        "buckets": [{"kind": "decode", "size": 1, "mode": "eager", "graphs": ["a", "b"]}],
    }
    report = wire.decode_report(json.dumps(newer).encode())
    assert report.load.running == 1
    assert report.buckets[0].size == 1


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b'{"name": "reboot"}\n',
        json.dumps(SMALLEST | {"sequence": "many"}).encode(),
        json.dumps(SMALLEST | {"stage": "Flying"}).encode(),
        json.dumps(SMALLEST | {"message": "\ud800"}, ensure_ascii=True).encode(),
        b'{"bootId": "\xff"}\n',
        b'{"sequence": 1e999}\n',
        pytest.param(b'{"unknown":' + b"[" * 100_000, id="brackets"),
        pytest.param(b'{"unknown":' * 100_000, id="braces"),
    ],
)
def test_a_bad_line_is_an_error_of_msgspec_and_no_other(line: bytes) -> None:
    for decode in (wire.decode_report, wire.decode_command):
        with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
            decode(line)


@given(cut=st.integers(0, 900), noise=st.binary(max_size=40))
def test_a_garbled_line_is_refused_or_read_but_never_ends_the_process(
    cut: int, noise: bytes
) -> None:
    line = wire.encode_line(FULL)
    for garbled in (line[:cut] + noise, line[:cut] + noise + line[cut:], noise):
        with contextlib.suppress(msgspec.ValidationError, msgspec.DecodeError):
            assert isinstance(wire.decode_report(garbled), WarmupReport)


def test_a_report_of_many_buckets_fits_a_line() -> None:
    """6 lists of at most 64 sizes is what a resource can declare."""
    bucket = Bucket(
        kind=StepKind.PREFILL,
        size=131_072,
        mode=BucketMode.LAZY,
        state=BucketState.FALLBACK,
        seconds=123.456789,
        bytes=1 << 40,
        reason="capture failed: " + "x" * 1000,
    )
    full = msgspec.structs.replace(FULL, buckets=[bucket] * 6 * 64)
    assert len(wire.encode_line(full)) < wire.MAX_LINE_BYTES


def test_a_pod_state_carries_the_report_or_none() -> None:
    for report in (FULL, None):
        state = PodState(ready=False, reason="WarmingUp", message="", report=report)
        assert msgspec.json.decode(msgspec.json.encode(state), type=PodState) == state
