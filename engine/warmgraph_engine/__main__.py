"""Entry point: SIGTERM ends the process also while Python imports the rest of it, and a switch of
graphs (switch.py) waits until somebody listens."""

from __future__ import annotations

import signal
import sys

from warmgraph_api.stopping import end_at_sigterm


def main() -> int:
    end_at_sigterm()
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2))
    from warmgraph_engine.main import main as run  # noqa: PLC0415

    return run()


if __name__ == "__main__":
    sys.exit(main())
