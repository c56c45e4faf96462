"""What Triton makes of the kernels, for real, without a GPU to run them on."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import triton

from tests.engine.cuda.models import gpt2, llama_values, settings
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.cuda.compiler import Compiler
from warmgraph_engine.backends.cuda.layout import geometry, plan_device, plan_host, plan_results
from warmgraph_engine.backends.cuda.program import step_program, usual_shapes
from warmgraph_engine.models.config import ModelConfig, parse_config
from warmgraph_engine.models.weights import weight_specs

SHARED_BYTES = 227 << 10
"""Of a program, at most, on compute capability 9.0."""

READS_REGISTERS = re.compile(r"HGMMA\S* R\d+, R\d+, gdesc")
"""A matrix instruction that takes one of its factors from registers."""

WAITS = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
"""Until no more matrix instructions than these are at work."""


INSTRUCTIONS = {"H": "HGMMA", "W": "WARPGROUP.DEPBAR", "B": "BAR.SYNC", "C": "LDGSTS"}
"""Matrix instructions, waits for them, barriers of all warps, and copies to shared memory."""


def compiled(config: ModelConfig, dtype: str, **changes: Any) -> dict[str, tuple[int, str]]:
    """By variant of a kernel that a step may need: its shared memory and its machine code."""
    options = settings(
        dtype, max_batch_size=80, max_batch_tokens=700, max_tokens_per_sequence=4, **changes
    )
    layouts = (
        plan_device(config, options, weight_specs(config, ["lm_head.weight"])),
        plan_host(config, options),
        plan_results(options),
    )
    compiler = Compiler(90, {r.name: r.dtype for layout in layouts for r in layout})
    launches = [
        launch
        for shape in usual_shapes(options)
        for launch in step_program(config, geometry(options), shape)
    ]
    compiler.compile_together(launches)
    binaries = {binary.kernel.variant: binary for binary in map(compiler.compile, launches)}
    return {
        f"{binary.kernel.name} {variant}": (binary.kernel.shared_bytes, _disassembled(binary.code))
        for variant, binary in binaries.items()
    }


def _disassembled(code: bytes) -> str:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        command = [str(tool), "-c", file.name]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return str(run.stdout)


def _order(code: str) -> str:
    """Of INSTRUCTIONS, by their letters."""
    letters = {instruction: letter for letter, instruction in INSTRUCTIONS.items()}
    found = re.findall("|".join(map(re.escape, letters)), code)
    return "".join(letters[instruction] for instruction in found)


def _refills_too_soon(order: str) -> bool:
    """Whether copies come behind matrix instructions without a wait, or without a barrier after it:
    those of the pass before, and of another four warps, may still read what is overwritten."""
    *before_copies, _ = re.split("C+", order)
    return any("H" in part and not re.search("W.*B", part) for part in before_copies)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("config", "dtype", "quantization"),
    [
        (parse_config(llama_values(intermediate_size=8192, hidden_size=1024)), "bfloat16", "none"),
        (parse_config(llama_values(intermediate_size=8192, hidden_size=1024)), "bfloat16", "fp8"),
        (gpt2(n_embd=192), "float16", "fp8"),
    ],
    ids=["llama", "llama, fp8", "gpt2, fp8"],
)
def test_no_matrix_instruction_is_at_work_on_what_is_loaded_again(
    config: ModelConfig, dtype: str, quantization: str
) -> None:
    """Neither on registers, before whose next use none is, nor on shared memory, where the last
    but one must be over for all warps; and every program fits into a multiprocessor."""
    found = compiled(config, dtype, quantization=Quantization(quantization))
    assert all(shared <= SHARED_BYTES for shared, _ in found.values())
    codes = {name: code for name, (_, code) in found.items() if READS_REGISTERS.search(code)}
    waits = {name: set(WAITS.findall(code)) for name, code in codes.items()}
    assert any(name.startswith("linear") for name in waits) == (quantization == "fp8")
    assert {name: found for name, found in waits.items() if found != {"0x0"}} == {}
    orders = {name: _order(code) for name, (_, code) in found.items() if "HGMMA" in code}
    assert any("C" in order for order in orders.values())
    assert {name: order for name, order in orders.items() if _refills_too_soon(order)} == {}
