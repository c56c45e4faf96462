"""A rank that cannot do one thing, on any device: what tests start in place of the real one.

FAILS says what:

    capture KIND SIZE, load KIND SIZE   it has no graph of this bucket
    silent capture, silent weights      it never answers when it should capture, or have its weights
    weights                             its weights cannot be read
    weights after N                     it has them only once it has loaded N graphs
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from warmgraph_engine.backends.base import Backend, CaptureError, Graph, GraphImage, ImageError
from warmgraph_engine.backends.open import open_backend
from warmgraph_engine.models.config import ModelError
from warmgraph_engine.parallel import worker
from warmgraph_engine.shapes import StepShape


class FailingBackend:
    """As the backend that it wraps, with one failure. It is its own recorder and player: eager
    steps have the real ones."""

    def __init__(self, backend: Backend, fails: str) -> None:
        self._backend, self._fails = backend, fails
        self._loaded = 0
        self.recorder = self.player = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def record(self, size: int, shape: StepShape) -> GraphImage:
        self._be_silent("capture")
        if self._fails == f"capture {shape.kind} {size}":
            raise CaptureError("out of memory here")
        return self._backend.recorder.record(size, shape)

    def load(self, image: GraphImage) -> Graph:
        if self._fails == f"load {image.kind} {image.size}":
            raise ImageError("was refused here")
        self._loaded += 1
        return self._backend.player.load(image)

    def finish_loading(self) -> None:
        self._be_silent("weights")
        if self._fails == "weights":
            raise ModelError("model.safetensors: cannot be read")
        early, _, graphs = self._fails.rpartition(" ")
        if early == "weights after" and self._loaded < int(graphs):
            raise ModelError(f"asked for after {self._loaded} graphs")
        self._backend.finish_loading()

    def _be_silent(self, where: str) -> None:
        if self._fails == f"silent {where}":
            time.sleep(1000)


def main() -> int:
    def open_failing(*arguments: Any, **named: Any) -> Any:
        backend, facts = open_backend(*arguments, **named)
        return FailingBackend(backend, os.environ["FAILS"]), facts

    worker.open_backend = open_failing
    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
