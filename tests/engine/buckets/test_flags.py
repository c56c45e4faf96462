"""The command line: every mistake is answered by a sentence that names the flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmgraph_api.report import BucketMode, StepKind
from warmgraph_api.resource import CacheMode, Execution
from warmgraph_engine.config import EngineConfig, parse
from warmgraph_engine.store.policy import Retention, User


def test_a_model_is_enough() -> None:
    config = parse(["--model", "/models/smol"])
    assert config == EngineConfig(model=Path("/models/smol"), served_model_name="smol")


def test_every_flag_of_the_pod_is_understood() -> None:
    flags = """--model /m --model-revision r1 --served-model-name n --host 127.0.0.1 --port 0
        --device cpu --execution Eager --dtype bfloat16 --quantization none
        --attention-backend auto --tensor-parallel-size 1 --max-model-length 128
        --max-batch-size 4 --max-batch-tokens 64 --kv-block-size 8 --kv-cache-memory 1.5Gi
        --speculative-method NGram --speculative-tokens 3 --decode-buckets 1,2
        --decode-buckets-lazy 4 --prefill-buckets 32 --prefill-buckets-lazy 64
        --verify-buckets 1 --verify-buckets-lazy 2 --warmup-policy ModelLoaded
        --warmup-order Learned --on-capture-failure Fail --lazy-capture false
        --lazy-capture-busy-percent 5 --known-answer-check false --cache-directory /c
        --cache-mode ReadOnly --cache-keep-revisions 0 --cache-max-size 10Mi
        --cache-user space.name@r1 --report-socket /run/s"""
    config = parse(flags.split())
    assert config.execution is Execution.EAGER
    assert config.kv_cache_bytes == 3 << 29
    assert config.speculative_tokens == 3
    assert config.cache_mode is CacheMode.READ_ONLY
    assert config.cache_retention == Retention(revisions=0, max_bytes=10 << 20)
    assert config.cache_user == User("space.name", "r1")
    assert [(b.kind, b.size, b.mode) for b in config.buckets] == [
        (StepKind.DECODE, 1, BucketMode.EAGER),
        (StepKind.DECODE, 2, BucketMode.EAGER),
        (StepKind.DECODE, 4, BucketMode.LAZY),
        (StepKind.PREFILL, 32, BucketMode.EAGER),
        (StepKind.PREFILL, 64, BucketMode.LAZY),
        (StepKind.VERIFY, 1, BucketMode.EAGER),
        (StepKind.VERIFY, 2, BucketMode.LAZY),
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "--model"),
        ("--model /m --port x", "--port: 'x' is not a whole number"),
        ("--model /m --port 65536", "--port: '65536' is not a whole number from 0 to 65535"),
        ("--model /m --kv-block-size 1", "--kv-block-size: '1' is not a whole number from 2"),
        ("--model /m --max-batch-size 0", "--max-batch-size: '0' is not a whole number from 1"),
        ("--model /m --kv-cache-memory lots", "'lots' is not a quantity such as 512Mi"),
        ("--model /m --decode-buckets 4,2", "'4,2': sizes must ascend and not repeat"),
        ("--model /m --decode-buckets 0", "'0' is not a whole number from 1"),
        ("--model /m --decode-buckets 9", "9 is above --max-batch-size 8"),
        ("--model /m --prefill-buckets 512", "512 is above --max-batch-tokens 256"),
        ("--model /m --decode-buckets 2 --decode-buckets-lazy 2", "both eager and lazy"),
        ("--model /m --cache-user ../x@r", "'../x@r' is not OWNER@REVISION"),
        ("--model /m --verify-buckets 1", "need --speculative-method"),
        ("--model /m --buckets-preset Full --decode-buckets 1", "not both"),
        ("--model /m --lazy-capture yes", "neither true nor false"),
        ("--model /m --lazy-capture-busy-percent 101", "from 1 to 100"),
        ("--model /m --dtype float16", "--dtype float16 needs --device cuda"),
        ("--model /m --graph-mode Piecewise", "--graph-mode Piecewise needs --device cuda"),
        ("--model /m --quantization int8", "--quantization: invalid choice: 'int8'"),
        ("--model /m --tensor-parallel-size 2 --quantization fp8", "do not go together"),
        ("--model /m --rank-timeout-seconds 0", "'0' is not a whole number from 1"),
        ("--model /m --attention-backend flash", "can only be auto"),
        ("--model /m --mod x", "unrecognized arguments"),
    ],
)
def test_a_mistake_is_named(flags: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(flags.split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
