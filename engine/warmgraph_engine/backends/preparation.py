"""What an engine makes ready once it serves: kernels that its stored graphs have not brought along.

Steps without a graph need them, and buckets that are yet to be captured.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

from warmgraph_engine.backends.base import Recorder, first_line

_log = logging.getLogger(__name__)


class Preparation:
    """Once, on a thread of its own."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.over = False
        """Whether nothing of it is left to wait for, be it that it failed."""

    def start(self, then: Callable[[], None]) -> None:
        """Returns at once; `then` is called on that thread when it is over."""
        Thread(target=self._work, args=(then,), name="prepare", daemon=True).start()

    def _work(self, then: Callable[[], None]) -> None:
        try:
            self._recorder.prepare()
        except (RuntimeError, ValueError, OSError) as error:
            # Whoever needs them later waits for them, and is told why there are none.
            _log.warning("kernels are not compiled ahead: %s", first_line(error))
        finally:
            self.over = True
            then()
