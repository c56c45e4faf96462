"""The operator writes command lines; the engine and the sidecar must read them as they were meant.

The three packages never import each other, so only a test sees both ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given

from tests.contracts.specs import specs
from warmgraph_api import labels
from warmgraph_api.report import Bucket, BucketMode, StepKind
from warmgraph_api.resource import (
    BucketPreset,
    Model,
    Spec,
    SpeculativeMethod,
    StepBuckets,
)
from warmgraph_engine import config as engine
from warmgraph_operator.desired.flags import engine_flags, sidecar_flags
from warmgraph_sidecar import settings as sidecar

EXAMPLES = Path(__file__).parents[2] / "examples"
DEFAULT = Spec(model=Model(uri="pvc://models/a"))


def specs_of_examples() -> list[Any]:
    return [
        pytest.param(msgspec.convert(document["spec"], Spec), id=document["metadata"]["name"])
        for path in sorted(EXAMPLES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == labels.KIND
    ]


def flags_of(spec: Spec, name: str = "a", revision: str = "0123abcd45") -> list[str]:
    return engine_flags(spec, namespace="space", name=name, revision=revision)


def sizes(buckets: tuple[Bucket, ...], kind: StepKind) -> StepBuckets:
    def of(mode: BucketMode) -> list[int]:
        return [bucket.size for bucket in buckets if (bucket.kind, bucket.mode) == (kind, mode)]

    return StepBuckets(eager=of(BucketMode.EAGER), lazy=of(BucketMode.LAZY))


def as_the_engine_supports(spec: Spec) -> Spec:
    """The resource declares more than this engine runs; it refuses the rest by name."""
    engine = msgspec.structs.replace(
        spec.engine,
        attention_backend="auto",
    )
    return msgspec.structs.replace(spec, engine=engine)


@pytest.mark.parametrize("flag", ["--quantization=int8", "--attention-backend=other"])
def test_what_the_engine_does_not_run_is_refused_by_name(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        engine.parse(["--model=/models/a", "--device=cuda", flag])
    assert flag.partition("=")[0] in capsys.readouterr().err


@given(spec=specs().map(as_the_engine_supports))
def test_the_engine_runs_with_what_the_resource_says(spec: Spec) -> None:
    config = engine.parse(flags_of(spec, "deployment"))
    declared = spec.engine
    assert config.model == Path("/models/models/some/model")
    assert config.model_revision == spec.model.revision
    assert config.served_model_name == (spec.model.served_name or "deployment")
    for name in (
        "device",
        "execution",
        "dtype",
        "quantization",
        "attention_backend",
        "tensor_parallel_size",
        "max_model_length",
        "max_batch_size",
        "max_batch_tokens",
    ):
        assert getattr(config, name) == getattr(declared, name), name
    assert config.kv_block_size == declared.kv_cache.block_size
    speculates = declared.speculative.method is not SpeculativeMethod.NONE
    assert config.speculative_tokens == (declared.speculative.tokens if speculates else 0)
    assert config.warmup_policy is spec.warmup.policy
    assert config.warmup_order is spec.warmup.order
    assert config.on_capture_failure is spec.warmup.on_failure
    assert config.lazy_capture is spec.warmup.lazy_capture.enabled
    assert config.lazy_capture_busy_percent == spec.warmup.lazy_capture.max_busy_percent
    assert config.known_answer_check is spec.warmup.known_answer_check
    assert config.cache_user == ("space.deployment", "0123abcd45")
    if spec.buckets.preset is BucketPreset.NONE:
        assert sizes(config.buckets, StepKind.DECODE) == spec.buckets.decode
        assert sizes(config.buckets, StepKind.PREFILL) == spec.buckets.prefill
        assert sizes(config.buckets, StepKind.VERIFY) == spec.buckets.verify
    else:
        assert config.buckets


@given(spec=specs())
def test_the_sidecar_judges_by_what_the_resource_says(spec: Spec) -> None:
    settings = sidecar.parse(sidecar_flags(spec))
    assert settings.policy.warmup is spec.warmup.policy
    assert settings.policy.on_capture_failure is spec.warmup.on_failure
    assert settings.policy.known_answer_check is spec.warmup.known_answer_check
    assert settings.policy.stall_timeout_seconds == spec.warmup.stall_timeout_seconds
    assert 0 < settings.drain_timeout_seconds <= spec.template.termination_grace_period_seconds


@pytest.mark.parametrize("spec", specs_of_examples())
def test_an_example_starts(spec: Spec) -> None:
    assert engine.parse(flags_of(spec)).buckets
    sidecar.parse(sidecar_flags(spec))


def test_an_engine_run_by_hand_has_the_defaults_of_the_resource() -> None:
    by_operator = engine.parse(flags_of(DEFAULT))
    by_hand = engine.parse(["--model=/models/models/a"])
    differing = {
        name
        for name in engine.EngineConfig.__dataclass_fields__
        if getattr(by_operator, name) != getattr(by_hand, name)
    }
    # A pod has a sidecar, a volume for the cache and a revision; a shell has none of them.
    assert differing == {"report_socket", "cache_directory", "cache_user"}


def test_a_sidecar_run_by_hand_has_the_defaults_of_the_resource() -> None:
    assert sidecar.parse(sidecar_flags(DEFAULT)) == sidecar.parse([])


def test_the_page_lists_every_flag_that_a_pod_gets() -> None:
    page = (EXAMPLES.parent / "docs" / "architecture.md").read_text()
    everything = msgspec.convert(
        {
            "model": {"uri": "pvc://m", "revision": "1"},
            "engine": {"speculative": {"method": "NGram"}},
            "buckets": {
                kind: {"eager": [1], "lazy": [2]} for kind in ("decode", "prefill", "verify")
            },
        },
        Spec,
    )
    flags = [*flags_of(everything), *sidecar_flags(everything)]
    unlisted = {flag.partition("=")[0] for flag in flags if flag.partition("=")[0] not in page}
    assert unlisted == set()
