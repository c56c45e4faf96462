"""The command lines of engine and sidecar (docs/architecture.md).

Every setting is a flag, also one at its default, so that `kubectl describe pod` shows what runs.
"""

from __future__ import annotations

from warmgraph_api import ports
from warmgraph_api.resource import CacheMode, Spec, StepBuckets
from warmgraph_operator.desired.model import model_directory

DRAIN_MARGIN_SECONDS = 10
"""Of the grace period, kept for the engine's own exit after SIGTERM: closing connections and
freeing GPU memory takes a few seconds."""


def drain_timeout_seconds(grace_period_seconds: int) -> int:
    """Longest that a stopping pod works on; at most a quarter of a short period is kept back."""
    return max(1, grace_period_seconds - min(DRAIN_MARGIN_SECONDS, grace_period_seconds // 4))


def engine_flags(spec: Spec, *, namespace: str, name: str, revision: str) -> list[str]:
    """name: of the resource, which the model is served under unless it has its own. revision: what
    the pods are of; its graphs are kept as long as it is."""
    engine, warmup, cache = spec.engine, spec.warmup, spec.graph_cache
    flags = [
        f"--model={model_directory(spec.model.uri)}",
        f"--served-model-name={spec.model.served_name or name}",
        f"--port={ports.ENGINE_PORT}",
        f"--device={engine.device}",
        f"--execution={engine.execution}",
        f"--dtype={engine.dtype}",
        f"--quantization={engine.quantization}",
        f"--attention-backend={engine.attention_backend}",
        f"--tensor-parallel-size={engine.tensor_parallel_size}",
        f"--max-model-length={engine.max_model_length}",
        f"--max-batch-size={engine.max_batch_size}",
        f"--max-batch-tokens={engine.max_batch_tokens}",
        f"--kv-block-size={engine.kv_cache.block_size}",
        f"--kv-cache-memory={engine.kv_cache.memory}",
        f"--speculative-method={engine.speculative.method}",
        f"--speculative-tokens={engine.speculative.tokens}",
        f"--buckets-preset={spec.buckets.preset}",
        *_bucket_flags("decode", spec.buckets.decode),
        *_bucket_flags("prefill", spec.buckets.prefill),
        *_bucket_flags("verify", spec.buckets.verify),
        f"--warmup-policy={warmup.policy}",
        f"--warmup-order={warmup.order}",
        f"--on-capture-failure={warmup.on_failure}",
        f"--lazy-capture={_boolean(warmup.lazy_capture.enabled)}",
        f"--lazy-capture-busy-percent={warmup.lazy_capture.max_busy_percent}",
        f"--known-answer-check={_boolean(warmup.known_answer_check)}",
        f"--cache-mode={cache.mode}",
        f"--cache-keep-revisions={max(cache.retention.revisions, spec.rollout.history_limit)}",
        f"--cache-max-size={cache.retention.max_size}",
        # A namespace has no dots, so that this names one deployment.
        f"--cache-user={namespace}.{name}@{revision}",
        f"--report-socket={ports.REPORT_SOCKET}",
    ]
    if spec.model.revision:
        flags.insert(1, f"--model-revision={spec.model.revision}")
    if cache.mode is not CacheMode.DISABLED:
        flags.append(f"--cache-directory={ports.CACHE_DIRECTORY}")
    return flags


def _bucket_flags(kind: str, buckets: StepBuckets) -> list[str]:
    """A list that is empty is left out: no bucket is what the engine then has."""
    lists = {f"--{kind}-buckets": buckets.eager, f"--{kind}-buckets-lazy": buckets.lazy}
    return [f"{flag}={','.join(map(str, sizes))}" for flag, sizes in lists.items() if sizes]


def sidecar_flags(spec: Spec) -> list[str]:
    grace = spec.template.termination_grace_period_seconds
    return [
        f"--port={ports.SIDECAR_PORT}",
        f"--report-socket={ports.REPORT_SOCKET}",
        f"--policy={spec.warmup.policy}",
        f"--on-capture-failure={spec.warmup.on_failure}",
        f"--stall-timeout-seconds={spec.warmup.stall_timeout_seconds}",
        f"--known-answer-check={_boolean(spec.warmup.known_answer_check)}",
        f"--drain-timeout-seconds={drain_timeout_seconds(grace)}",
    ]


def _boolean(value: bool) -> str:
    return "true" if value else "false"
