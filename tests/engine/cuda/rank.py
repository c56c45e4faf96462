"""A rank beside rank 0 with an interpreted GPU: what ranks_cases.py starts in its place."""

from __future__ import annotations

import sys

import pytest

from tests.engine.cuda.working import WorkingGpu
from warmgraph_engine.parallel import worker

if __name__ == "__main__":
    WorkingGpu().install(pytest.MonkeyPatch())
    sys.exit(worker.main())
