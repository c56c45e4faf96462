"""Entry point: SIGTERM ends the process also while Python imports the rest of it."""

from __future__ import annotations

from warmgraph_api.stopping import end_at_sigterm


def main() -> None:
    end_at_sigterm()
    from warmgraph_activator.main import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
