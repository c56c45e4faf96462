"""`warmgraph`: what a person runs by hand on model folders and graph caches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from warmgraph_engine.flags import parse_quantity
from warmgraph_engine.store import report
from warmgraph_engine.store.policy import Retention
from warmgraph_engine.store.trust import describe


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="warmgraph", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_convert(commands)
    _add_cache(commands)
    arguments = parser.parse_args(argv)
    try:
        result: int = arguments.run(arguments)
    except OSError as error:
        return _fail(describe(error))
    return result


def _add_convert(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    convert = commands.add_parser("convert-gguf", help="turn a GGUF file into a model folder")
    convert.add_argument("source", type=Path, metavar="SRC", help="the GGUF file")
    convert.add_argument("destination", type=Path, metavar="DST", help="the folder to write")
    convert.set_defaults(run=_convert_gguf)


def _add_cache(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cache = commands.add_parser("cache", help="look into a graph cache")
    actions = cache.add_subparsers(required=True, metavar="ACTION")
    listing = actions.add_parser("ls", help="a line for each entry")
    listing.set_defaults(run=lambda a: _print(report.listing(a.directory)))
    verify = actions.add_parser("verify", help="compare every checksum; status 1 if one is off")
    verify.set_defaults(run=_verify)
    show = actions.add_parser("show", help="key and buckets of one entry")
    show.set_defaults(run=_show)
    prune = actions.add_parser("prune", help="remove entries that nobody needs any more")
    prune.set_defaults(run=_prune)
    for action in (listing, verify, show, prune):
        action.add_argument("directory", type=Path, metavar="DIR", help="the cache's folder")
    show.add_argument("entry", metavar="KEY", help="digest of the key, or how it begins")
    prune.add_argument(
        "--keep-revisions",
        type=int,
        default=Retention().revisions,
        metavar="N",
        help="earlier revisions of each deployment whose entries stay (default %(default)s)",
    )
    prune.add_argument(
        "--max-size",
        type=parse_quantity,
        default=Retention().max_bytes,
        metavar="SIZE",
        help="of all entries together (default 1Gi); with 0 every entry goes that no process uses",
    )


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


def _verify(arguments: argparse.Namespace) -> int:
    lines, sound = report.verification(arguments.directory)
    _print(lines)
    return 0 if sound else 1


def _show(arguments: argparse.Namespace) -> int:
    try:
        return _print(report.description(arguments.directory, arguments.entry))
    except LookupError as error:
        return _fail(str(error.args[0]))


def _prune(arguments: argparse.Namespace) -> int:
    if arguments.keep_revisions < 0:
        return _fail("--keep-revisions must not be negative")
    kept = Retention(revisions=arguments.keep_revisions, max_bytes=arguments.max_size)
    try:
        return _print(report.pruned(arguments.directory, kept))
    except report.BusyError as error:
        return _fail(str(error))


def _print(lines: list[str]) -> int:
    for line in lines:
        sys.stdout.write(line + "\n")
    return 0


def _fail(message: str) -> int:
    sys.stderr.write(f"warmgraph: {message}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
