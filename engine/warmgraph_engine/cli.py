"""`warmgraph`: what a person runs by hand on model folders and graph caches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="warmgraph", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    convert = commands.add_parser("convert-gguf", help="turn a GGUF file into a model folder")
    convert.add_argument("source", type=Path, metavar="SRC", help="the GGUF file")
    convert.add_argument("destination", type=Path, metavar="DST", help="the folder to write")
    convert.set_defaults(run=_convert_gguf)
    arguments = parser.parse_args(argv)
    result: int = arguments.run(arguments)
    return result


def _convert_gguf(arguments: argparse.Namespace) -> int:
    try:
        from warmgraph_engine.convert.convert import convert_gguf  # noqa: PLC0415 (optional extra)
        from warmgraph_engine.convert.gguf_file import ConversionError  # noqa: PLC0415
    except ImportError as error:
        return _fail(f"{error}; install the extra: pip install 'warmgraph[convert]'")
    try:
        convert_gguf(arguments.source, arguments.destination)
    except ConversionError as error:
        return _fail(str(error))
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"warmgraph: {message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
