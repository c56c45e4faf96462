"""A rank that cannot do one thing: what test_ranks.py starts in place of the real one.

FAILS says what: `capture KIND SIZE`, `load KIND SIZE`, or `answer`, to be silent when it should
capture.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from warmgraph_engine.backends.base import CaptureError, GraphImage, ImageError
from warmgraph_engine.backends.cpu.player import CpuPlayer
from warmgraph_engine.backends.cpu.recorder import CpuRecorder
from warmgraph_engine.parallel import worker
from warmgraph_engine.shapes import StepShape

WHAT, *BUCKET = os.environ["FAILS"].split()


class FailingRecorder(CpuRecorder):
    def record(self, size: int, shape: StepShape) -> GraphImage:
        if WHAT == "answer":
            time.sleep(1000)
        if [WHAT, shape.kind, str(size)] == ["capture", *BUCKET]:
            raise CaptureError("out of memory here")
        return super().record(size, shape)


class FailingPlayer(CpuPlayer):
    def load(self, image: GraphImage) -> Any:
        if [WHAT, image.kind, str(image.size)] == ["load", *BUCKET]:
            raise ImageError("was refused here")
        return super().load(image)


if __name__ == "__main__":
    from warmgraph_engine.backends.cpu import backend

    backend.CpuRecorder = FailingRecorder  # type: ignore[misc]
    backend.CpuPlayer = FailingPlayer  # type: ignore[misc]
    sys.exit(worker.main())
