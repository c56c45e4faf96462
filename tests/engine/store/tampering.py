"""Editing entries as somebody with a text editor would, or somebody who knows the format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from warmgraph_engine.store import layout
from warmgraph_engine.store.layout import Manifest


def files(entry: Path) -> list[Path]:
    """All that is trusted after a check: not the plan, nor who used it."""
    found = [*entry.glob("*.json"), *entry.glob("images/*"), *entry.glob("binaries/*")]
    return sorted(path for path in found if path.name != layout.PLAN)


def document(entry: Path, bucket: str) -> Path:
    """The file of a bucket such as "decode-4"."""
    (found,) = entry.glob(f"images/{bucket}-*.json")
    return found


def edit_manifest(entry: Path, edit: Callable[[Any], None]) -> None:
    """With a checksum that fits again, where it is still a manifest at all."""
    path = entry / layout.MANIFEST
    values = json.loads(path.read_text())
    edit(values)
    with suppress(msgspec.ValidationError):
        values = msgspec.to_builtins(msgspec.convert(values, Manifest).sealed())
    path.write_text(json.dumps(values))


def replace_document(entry: Path, bucket: str, content: bytes) -> None:
    """As its writer would have stored it: under its name, with its checksum."""
    old = document(entry, bucket)
    digest = hashlib.sha256(content).hexdigest()
    kind, size = bucket.split("-")
    name = f"images/{kind}-{size}-{digest[:16]}.json"
    old.unlink()
    (entry / name).write_bytes(content)

    def edit(manifest: Any) -> None:
        del manifest["files"][f"images/{old.name}"]
        manifest["files"][name] = {"sha256": digest, "bytes": len(content)}
        for image in manifest["images"]:
            if image["file"] == f"images/{old.name}":
                image["file"] = name

    edit_manifest(entry, edit)


def rewrite(path: Path, edit: Callable[[Any], None]) -> None:
    """Edit a JSON file, and nothing else."""
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))
