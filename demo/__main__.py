"""`python -m demo run` and `python -m demo down`; the Makefile calls both."""

from __future__ import annotations

import sys

from demo import environment, teardown, walkthrough

COMMANDS = {"run": walkthrough.run, "down": teardown.down}


def main() -> None:
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command not in COMMANDS:
        raise SystemExit(f"usage: python -m demo {' | '.join(COMMANDS)}")
    environment.expand_home()
    COMMANDS[command]()


main()
