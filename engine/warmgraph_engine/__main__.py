"""Entry point: SIGTERM ends the process also while Python imports the rest of it."""

from __future__ import annotations

import sys

from warmgraph_api.stopping import end_at_sigterm


def main() -> int:
    end_at_sigterm()
    from warmgraph_engine.main import main as run  # noqa: PLC0415

    return run()


if __name__ == "__main__":
    sys.exit(main())
