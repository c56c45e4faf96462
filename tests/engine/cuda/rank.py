"""A rank beside rank 0 with an interpreted GPU: what ranks_cases.py starts in its place. With FAILS
it is failing_rank.py's."""

from __future__ import annotations

import os
import sys

import pytest

from tests.engine.cuda.working import WorkingGpu
from tests.engine.parallel import failing_rank
from warmgraph_engine.parallel import worker

if __name__ == "__main__":
    WorkingGpu().install(pytest.MonkeyPatch())
    sys.exit(failing_rank.main() if "FAILS" in os.environ else worker.main())
