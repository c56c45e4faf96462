"""Reading an entry, trusting nothing before it is checked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.store import layout, trust
from warmgraph_engine.store.layout import FileFacts, Manifest, Plan
from warmgraph_engine.store.trust import RefusalError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    key: CacheKey
    manifest: Manifest
    plan: Plan = field(default_factory=Plan)


def read_key(entry: Path) -> CacheKey:
    """The key of an entry, which must fit the entry's name. Raises RefusalError or OSError."""
    os.close(trust.open_folder(entry))
    data = trust.read_file(entry, layout.KEY)
    try:
        key = msgspec.json.decode(data, type=CacheKey)
    except msgspec.MsgspecError as error:
        raise RefusalError(f"{entry / layout.KEY} is of another format: {error}") from error
    if key.digest() != entry.name:
        raise RefusalError(f"{entry / layout.KEY} does not fit the name of its folder")
    return key


def read_entry(entry: Path) -> StoredEntry:
    """Key, manifest and plan. Raises RefusalError or OSError."""
    key = read_key(entry)
    try:
        manifest = msgspec.json.decode(trust.read_file(entry, layout.MANIFEST), type=Manifest)
    except msgspec.MsgspecError as error:
        raise RefusalError(f"{entry / layout.MANIFEST} is damaged: {error}") from error
    if manifest.format != layout.FORMAT:
        raise RefusalError(
            f"{entry} has format {manifest.format}; this engine reads {layout.FORMAT}"
        )
    if manifest != manifest.sealed():
        raise RefusalError(f"{entry / layout.MANIFEST} is damaged: its checksum does not fit")
    if manifest.key != entry.name:
        raise RefusalError(f"{entry / layout.MANIFEST} belongs to another entry")
    return StoredEntry(key=key, manifest=manifest, plan=_read_plan(entry))


def read_images(entry: Path, manifest: Manifest) -> list[GraphImage]:
    """Every image, its checksum verified. Raises RefusalError or OSError."""
    content = {name: _read_checked(entry, name, facts) for name, facts in manifest.files.items()}
    try:
        return [
            GraphImage(
                kind=image.kind,
                size=image.size,
                document=content[image.file],
                binaries={digest: content[f"binaries/{digest}"] for digest in image.binaries},
                answer=image.answer,
            )
            for image in manifest.images
        ]
    except KeyError as error:
        raise RefusalError(f"{entry}: its manifest has no checksum of {error.args[0]}") from error


def entries(root: Path) -> Sequence[Path]:
    """Folders named like entries. Raises OSError."""
    return sorted(path for path in root.iterdir() if layout.DIGEST.fullmatch(path.name))


def _read_checked(entry: Path, name: str, facts: FileFacts) -> bytes:
    if not layout.FILE.fullmatch(name):
        raise RefusalError(f"{entry}: its manifest names {name!r}, which is no file of an entry")
    try:
        data = trust.read_file(entry, name)
    except FileNotFoundError:
        raise RefusalError(f"{entry / name} is missing") from None
    if len(data) != facts.bytes:
        raise RefusalError(f"{entry / name} has {len(data)} bytes instead of {facts.bytes}")
    if layout.sha256(data) != facts.sha256:
        raise RefusalError(f"{entry / name} has another checksum than its manifest says")
    return data


def _read_plan(entry: Path) -> Plan:
    """Advice: an unreadable plan is an empty one."""
    try:
        return msgspec.json.decode(trust.read_file(entry, layout.PLAN), type=Plan)
    except (OSError, RefusalError, msgspec.MsgspecError):
        return Plan()
