"""`warmgraph-engine`: one process that loads a model, warms it up and serves it.

A start on a GPU takes a second, and half of it is Python's imports. So what waits for a device goes
first: the GPU's context is created while Python imports what loads the model, and the HTTP server
is imported while the weights are on their way and the graphs are asked for their known answers. The
interpreter runs one thread at a time, so what is not needed yet would delay what is.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Event, Thread
from typing import TYPE_CHECKING

from warmgraph_api import openfiles
from warmgraph_api.resource import Device, Execution
from warmgraph_engine.config import EngineConfig, parse

if TYPE_CHECKING:
    from warmgraph_engine.report import Reporter
    from warmgraph_engine.startup import Started

_SWITCH_SECONDS = 5e-4
"""Of the interpreter: how soon a thread that waited for a device gets to go on while another one
runs. With the usual 5 ms a GPU would wait for the server's thread, and a start's weights for its
imports; with much less, two busy threads would do little but take turns."""

_LOADING_SECONDS = 1.0
"""The server is imported after this time in any case: it has to say that the engine is loading."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    config = parse(argv)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    openfiles.allow_many()
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Nothing here is left to numpy's BLAS, which would start a thread for each of the machine's
    # cores, and have all of them spin while Python imports.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if config.device is Device.CUDA:
        from warmgraph_engine.backends.cuda.context import create_context  # noqa: PLC0415

        Thread(target=create_context, name="context", daemon=True).start()
    from warmgraph_engine.report import Reporter, process_started_at  # noqa: PLC0415

    reporter = Reporter(
        model=config.served_model_name,
        revision=config.model_revision,
        # Switched off, graphs are nothing to wait for.
        buckets=() if config.execution is Execution.EAGER else config.buckets,
        started_at=process_started_at(),
    )
    loading = Event()
    starting = _start_in_thread(config, reporter, loading)
    loading.wait(_LOADING_SECONDS)
    from warmgraph_engine import process  # noqa: PLC0415

    return process.run(config, reporter, starting)


def _start_in_thread(config: EngineConfig, reporter: Reporter, loading: Event) -> Future[Started]:
    """A daemon thread, so that SIGTERM ends the process also while a model loads."""
    from warmgraph_engine import startup  # noqa: PLC0415

    future: Future[Started] = Future()

    def work() -> None:
        try:
            future.set_result(startup.start(config, reporter, loading=loading.set))
        except BaseException as error:
            future.set_exception(error)
        finally:
            loading.set()

    Thread(target=work, name="start", daemon=True).start()
    return future
