"""The real checkpoint on a GPU: greedy text equals transformers', graphs on and off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.engine.cuda.serving import Serving
from tests.engine.harness import sequence
from tests.engine.process.engines import Start, starting
from tests.engine.prompts import PROMPTS
from tests.gpu import real_model
from warmgraph_api.report import StepKind
from warmgraph_api.resource import Execution
from warmgraph_engine.backends.cuda.backend import CudaBackend
from warmgraph_engine.backends.settings import BackendSettings
from warmgraph_engine.checkpoint.folder import Checkpoint
from warmgraph_engine.tokenizer.text import TextModel

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

NEW_TOKENS = 24
BUCKETS = [(StepKind.DECODE, n) for n in (1, 8, 20)] + [(StepKind.PREFILL, n) for n in (16, 256)]
MOST_OTHERS = {"float32": 0.0, "bfloat16": 0.05}
"""The part of the tokens that may be another than the likeliest of transformers, which computes in
float32 with the same weights: in 16 bits logits of up to 30 went through 30 layers of rounding."""

WIDEST_GAP = 0.5
"""Between the likeliest logit and that of such a token: beyond it another token is a mistake."""


class Reference:
    """transformers, in float32 on the CPU."""

    def __init__(self, folder: Path) -> None:
        import transformers

        self._folder, self._models = folder, transformers.AutoModelForCausalLM
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.prompts: list[list[int]] = [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]

    def gaps(self, outputs: list[list[int]], dtype: str) -> list[float]:
        """For each token of each output, how far its logit is below the likeliest one's after all
        tokens before it. All zero: these are the tokens of a greedy `generate`."""
        model = self._models.from_pretrained(self._folder, dtype=getattr(torch, dtype)).float()
        found = []
        for prompt, output in zip(self.prompts, outputs, strict=True):
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + output[:-1]])).logits[0, len(prompt) - 1 :]
            taken = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
            found += (logits.max(dim=1).values - taken).tolist()
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return real_model.find(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


Outputs = dict[Execution, list[list[int]]]


@pytest.fixture(scope="module")
def outputs_in(folder: Path, reference: Reference) -> Callable[[str], Outputs]:
    """By type, the tokens of all prompts at once, with graphs and without."""
    return cache(lambda dtype: generated(folder, reference.prompts, dtype))


def generated(folder: Path, prompts: list[list[int]], dtype: str) -> Outputs:
    settings = BackendSettings(
        dtype=dtype,
        block_size=16,
        kv_cache_bytes=256 << 20,
        max_model_length=256,
        max_batch_size=len(prompts),
        max_batch_tokens=256,
    )
    backend = CudaBackend(Checkpoint(folder), settings)
    serving = Serving(backend=backend, buckets=BUCKETS, requests=0, longest_prompt=0)
    found = {}
    for execution in Execution:
        sequences = [sequence(prompt, max_tokens=NEW_TOKENS) for prompt in prompts]
        with serving.engine(execution) as engine:
            engine.loop.submit(sequences)
            found[execution] = [result.ids for result in engine.wait(sequences)]
    return found


@pytest.mark.parametrize("dtype", MOST_OTHERS)
def test_greedy_tokens_of_20_prompts_are_those_of_transformers(
    outputs_in: Callable[[str], Outputs], reference: Reference, dtype: str
) -> None:
    outputs = outputs_in(dtype)
    assert outputs[Execution.GRAPHS] == outputs[Execution.EAGER]
    gaps = reference.gaps(outputs[Execution.GRAPHS], dtype)
    assert len(gaps) == len(PROMPTS) * NEW_TOKENS
    others = sum(gap > 0 for gap in gaps)
    print(f"{dtype}: {len(gaps)} tokens, {others} of them not the likeliest, by {max(gaps):.2g}")
    assert others <= MOST_OTHERS[dtype] * len(gaps)
    assert max(gaps) < WIDEST_GAP


@pytest.fixture
def start(tmp_path: Path, folder: Path) -> Iterator[Start]:
    flags = [
        f"--model={folder}",
        "--served-model-name=model",
        "--device=cuda",
        "--dtype=float32",
        "--kv-block-size=16",
        "--kv-cache-memory=256Mi",
        "--max-model-length=256",
        "--prefill-buckets=16,32",
    ]
    with starting(tmp_path, *flags) as start:
        yield start


def test_the_process_answers_with_the_same_text_with_graphs_and_without(
    start: Start, folder: Path, outputs_in: Callable[[str], Outputs]
) -> None:
    text = TextModel.load(folder, vocabulary=Checkpoint(folder).config.vocabulary)
    # A character may be cut in two where an output ends.
    expected = [
        text.decode(ids, skip_special_tokens=True).rstrip("\ufffd")
        for ids in outputs_in("float32")[Execution.GRAPHS]
    ]
    for execution in Execution:
        engine = start("--quantization=none", f"--execution={execution}")
        engine.serve()
        answers = [engine.complete(prompt, NEW_TOKENS).rstrip("\ufffd") for prompt in PROMPTS]
        assert answers == expected, execution
        assert engine.stop() == 0
