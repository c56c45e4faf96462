"""Sidecar and engine as the two processes of a pod: every declaration ends in its readiness.

Each of the two is tested alone elsewhere; here they must mean the same by their words.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.engine.checkpoints import write_checkpoint
from tests.engine.texts import VOCABULARY, byte_level_tokenizer
from tests.sidecar.conftest import Start

PATIENCE_SECONDS = 90
"""Importing torch takes seconds, and many times that on a busy machine."""

pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS)

FLAGS = [
    *["--host=127.0.0.1", "--port=0", "--device=cpu"],
    *["--max-model-length=64", "--kv-cache-memory=64Ki", "--kv-block-size=4"],
    "--max-batch-tokens=32",
]
EAGER = ["--decode-buckets=1,2", "--prefill-buckets=16"]

StartEngine = Callable[..., Awaitable[None]]


@pytest.fixture
async def start_engine(tmp_path: Path) -> AsyncIterator[StartEngine]:
    """Starts `warmgraph-engine` on a tiny model with further flags."""
    model = write_checkpoint(tmp_path / "model", vocab_size=VOCABULARY)
    weights = load_file(model / "model.safetensors")
    shape = (VOCABULARY, weights["model.norm.weight"].size)
    weights["model.embed_tokens.weight"] = np.random.default_rng(3).random(shape, np.float32)
    save_file(weights, model / "model.safetensors")
    byte_level_tokenizer().save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text("{}")
    started: list[asyncio.subprocess.Process] = []

    async def start_engine(socket: Path, *flags: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "warmgraph_engine", f"--model={model}", *FLAGS],
            *[f"--report-socket={socket}", *flags],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        started.append(process)

    yield start_engine
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("of_sidecar", "of_engine", "reason"),
    [
        ([], EAGER, "GraphsCaptured"),
        ([], ["--decode-buckets-lazy=1,2"], "NoEagerBuckets"),
        ([], [*EAGER, "--execution=Eager"], "NoEagerBuckets"),
        (
            ["--policy=ModelLoaded"],
            [*EAGER, "--warmup-policy=ModelLoaded", "--lazy-capture=false"],
            "WarmingUp",
        ),
    ],
    ids=["eager buckets", "lazy buckets", "eager execution", "ModelLoaded"],
)
async def test_every_declaration_becomes_ready(
    start: Start,
    start_engine: StartEngine,
    of_sidecar: list[str],
    of_engine: list[str],
    reason: str,
) -> None:
    sidecar = await start(*of_sidecar)
    await start_engine(sidecar.socket, *of_engine)
    body = await sidecar.until("/readyz", 200, patience=PATIENCE_SECONDS)
    assert body["reason"] == reason, body["message"]
    assert (await sidecar.get("/livez"))[0] == 200
