"""Specs that the API server accepts, made up at random (tests/apiserver checks that it does)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from warmgraph_api.resource import (
    BucketPreset,
    Device,
    DType,
    Execution,
    OnCaptureFailure,
    Quantization,
    Spec,
    SpeculativeMethod,
    WarmupOrder,
    WarmupPolicy,
)


@st.composite
def step_buckets(draw: st.DrawFn, limit: int) -> dict[str, list[int]]:
    sizes = draw(st.lists(st.integers(1, limit), unique=True, max_size=8))
    eager = {size for size in sizes if draw(st.booleans())}
    return {"eager": sorted(eager), "lazy": sorted(set(sizes) - eager)}


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    device = draw(st.sampled_from(Device))
    batch, tokens = draw(st.integers(1, 4096)), draw(st.integers(1, 131_072))
    method = draw(st.sampled_from(SpeculativeMethod))
    cuda = device is Device.CUDA
    quantization = draw(st.sampled_from(Quantization))
    shared = cuda and quantization is Quantization.NONE
    buckets: dict[str, Any] = {"preset": draw(st.sampled_from(BucketPreset))}
    if buckets["preset"] is BucketPreset.NONE:
        buckets |= {"decode": draw(step_buckets(batch)), "prefill": draw(step_buckets(tokens))}
        if method is not SpeculativeMethod.NONE:
            buckets["verify"] = draw(step_buckets(batch))
    return msgspec.convert(
        {
            "model": {
                "uri": "pvc://models/some/model",
                "revision": draw(
                    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=128)
                ),
                "servedName": draw(st.sampled_from(["", "meta-llama/Llama-3.1-8B", "--help"])),
            },
            "engine": {
                "device": device,
                "execution": draw(st.sampled_from(Execution)),
                "dtype": draw(st.sampled_from([d for d in DType if cuda or d != "float16"])),
                "quantization": quantization,
                "tensorParallelSize": draw(st.integers(1, 64)) if shared else 1,
                "maxModelLength": draw(st.integers(256, 1_048_576)),
                "maxBatchSize": batch,
                "maxBatchTokens": tokens,
                "kvCache": {
                    "blockSize": draw(st.integers(2, 256)),
                    "memory": draw(st.sampled_from(["1", "1.5Gi", "100k", "512Mi", "2T", "3G"])),
                },
                "speculative": {"method": method, "tokens": draw(st.integers(1, 16))},
            },
            "buckets": buckets,
            "warmup": {
                "policy": draw(st.sampled_from(WarmupPolicy)),
                "order": draw(st.sampled_from(WarmupOrder)),
                "onFailure": draw(st.sampled_from(OnCaptureFailure)),
                "stallTimeoutSeconds": draw(st.integers(10, 86_400)),
                "lazyCapture": {
                    "enabled": draw(st.booleans()),
                    "maxBusyPercent": draw(st.integers(1, 100)),
                },
                "knownAnswerCheck": draw(st.booleans()),
            },
            "template": {"terminationGracePeriodSeconds": draw(st.integers(1, 86_400))},
        },
        Spec,
    )
