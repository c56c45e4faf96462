"""What a start waits for before it does anything: imports are half of a warm start's second."""

from __future__ import annotations

import subprocess
import sys

import pytest


def imported(statement: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_nothing_heavy_is_imported_before_the_gpus_context_is_on_its_way() -> None:
    modules = imported("import warmgraph_engine.main, warmgraph_engine.backends.cuda.context")
    assert "warmgraph_engine.config" in modules
    assert not modules & {"numpy", "cuda.bindings.driver", "aiohttp", "uvloop", "tokenizers"}


@pytest.mark.parametrize("module", ["process", "startup", "backends.cuda.backend"])
def test_no_start_on_a_gpu_imports_torch_or_a_compiler(module: str) -> None:
    modules = imported(f"import warmgraph_engine.{module}")
    assert not modules & {"torch", "triton", "transformers", "pydantic", "jinja2"}


def test_a_start_imports_the_metrics_with_the_server() -> None:
    modules = imported("import warmgraph_engine.startup, warmgraph_engine.backends.cuda.backend")
    assert not modules & {"prometheus_client", "http.server", "ssl", "aiohttp"}


def test_a_start_that_compiles_nothing_imports_no_pools_of_processes() -> None:
    modules = imported("import warmgraph_engine.startup, warmgraph_engine.backends.cuda.backend")
    assert not modules & {"concurrent.futures.process", "multiprocessing.context"}
