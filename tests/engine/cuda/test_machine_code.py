"""What Triton makes of the kernels, for real, without a GPU to run them on."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import triton

from tests.engine.cuda.models import gpt2, llama_values, regions, settings
from warmgraph_api.resource import Quantization
from warmgraph_engine.backends.cuda.compiler import Compiler
from warmgraph_engine.backends.cuda.launch import Launch
from warmgraph_engine.backends.cuda.layout import geometry
from warmgraph_engine.backends.cuda.program import step_program, usual_shapes
from warmgraph_engine.models.config import ModelConfig, parse_config

SHARED_BYTES = 227 << 10
"""Of a program, at most, on compute capability 9.0."""

READS_REGISTERS = re.compile(r"HGMMA\S* R\d+, R\d+, gdesc")
"""A matrix instruction that takes one of its factors from registers."""

WAITS = re.compile(r"WARPGROUP\.DEPBAR\.LE gsb0, (0x[0-9a-f]+)")
"""Until no more matrix instructions than these are at work."""

LETTERS = {"HGMMA": "H", "WARPGROUP.DEPBAR": "W", "BAR.SYNC": "B", "LDGSTS": "C"}
"""Matrix instructions, waits for them, barriers of all warps, and copies to shared memory."""

LLAMA = parse_config(llama_values(intermediate_size=8192, hidden_size=1024))


@dataclass(frozen=True)
class Program:
    launch: Launch
    shared_bytes: int
    code: str

    @property
    def reads_registers(self) -> bool:
        return bool(READS_REGISTERS.search(self.code))

    @property
    def waits(self) -> set[str]:
        return set(WAITS.findall(self.code))

    @property
    def order(self) -> str:
        """Of its instructions, by their LETTERS."""
        found = re.findall("|".join(map(re.escape, LETTERS)), self.code)
        return "".join(LETTERS[instruction] for instruction in found)

    def refills_too_soon(self) -> bool:
        """Whether copies come behind matrix instructions without a wait, or without a barrier after
        it: those of the pass before, and of another four warps, may still read what is
        overwritten."""
        *before_copies, _ = re.split("C+", self.order)
        return any("H" in part and not re.search("W.*B", part) for part in before_copies)


def compiled(config: ModelConfig, dtype: str, **changes: Any) -> dict[str, Program]:
    """By variant, every kernel that a step may need."""
    options = settings(
        dtype, max_batch_size=80, max_batch_tokens=700, max_tokens_per_sequence=4, **changes
    )
    compiler = Compiler(90, {name: r.dtype for name, r in regions(config, options).items()})
    launches = [
        launch
        for shape in usual_shapes(options)
        for launch in step_program(config, geometry(options), shape)
    ]
    compiler.compile_together(launches)
    made = {
        (binary := compiler.compile(launch)).kernel.variant: (launch, binary) for launch in launches
    }
    return {
        f"{binary.kernel.name} {variant}": Program(
            launch, binary.kernel.shared_bytes, disassembled(binary.code)
        )
        for variant, (launch, binary) in made.items()
    }


def disassembled(code: bytes) -> str:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile() as file:
        file.write(code)
        file.flush()
        command = [str(tool), "-c", file.name]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return str(run.stdout)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("config", "dtype", "quantization", "widened"),
    [
        pytest.param(LLAMA, "bfloat16", "none", set(), id="llama"),
        pytest.param(LLAMA, "bfloat16", "fp8", {(0, 0), (1, 0), (0, 1)}, id="llama, fp8"),
        pytest.param(gpt2(n_embd=192), "float16", "fp8", {(0, 0)}, id="gpt2, fp8"),
    ],
)
def test_no_matrix_instruction_is_at_work_on_what_is_loaded_again(
    config: ModelConfig, dtype: str, quantization: str, widened: set[tuple[int, int]]
) -> None:
    """Neither on registers, before whose next use none is, nor on shared memory, where the last
    but one must be over for all warps; and every program fits into a multiprocessor. Among them
    are products with `widened` weights: gated ones or not, where one program adds up all splits or
    one of them."""
    found = compiled(config, dtype, quantization=Quantization(quantization))
    assert all(program.shared_bytes <= SHARED_BYTES for program in found.values())
    products = [p for p in found.values() if p.launch.constants.get("SCALED")]
    assert {(p.launch.constants["GATED"], p.launch.constants["MERGE"]) for p in products} == widened
    assert all(program.reads_registers for program in products)
    waits = {name: program.waits for name, program in found.items() if program.reads_registers}
    assert any(name.startswith("linear") for name in waits) == (quantization == "fp8")
    assert {name: of for name, of in waits.items() if of != {"0x0"}} == {}
    orders = {name: p.order for name, p in found.items() if "HGMMA" in p.code}
    assert any("C" in order for order in orders.values())
    assert {name: orders[name] for name in orders if found[name].refills_too_soon()} == {}
