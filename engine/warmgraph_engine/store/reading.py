"""Reading an entry, trusting nothing before it is checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.store import layout, trust
from warmgraph_engine.store.layout import FileFacts, Manifest, Plan
from warmgraph_engine.store.trust import RefusalError

_T = TypeVar("_T", CacheKey, Manifest, Plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    key: CacheKey
    manifest: Manifest
    plan: Plan = field(default_factory=Plan)


def read_key(entry: Path) -> CacheKey:
    """The key of an entry, which must fit the entry's name. Raises RefusalError or OSError."""
    key = read_claimed_key(entry)
    if key.digest() != entry.name:
        raise RefusalError(f"{entry / layout.KEY} does not fit the name of its folder")
    return key


def read_claimed_key(entry: Path) -> CacheKey:
    """What key.json says, whether or not it fits the entry's name. Raises RefusalError or
    OSError."""
    return _decode(trust.read_file(entry, layout.KEY), CacheKey, entry / layout.KEY)


def read_entry(entry: Path) -> StoredEntry:
    """Key, manifest and plan. Raises RefusalError or OSError."""
    key = read_key(entry)
    manifest = _decode(trust.read_file(entry, layout.MANIFEST), Manifest, entry / layout.MANIFEST)
    if manifest.format != layout.FORMAT:
        raise RefusalError(
            f"{entry} has format {manifest.format}; this engine reads {layout.FORMAT}"
        )
    if manifest != manifest.sealed():
        raise RefusalError(f"{entry / layout.MANIFEST} is damaged: its checksum does not fit")
    if manifest.key != entry.name:
        raise RefusalError(f"{entry / layout.MANIFEST} belongs to another entry")
    if problem := manifest.contradiction():
        raise RefusalError(f"{entry / layout.MANIFEST} {problem}")
    return StoredEntry(key=key, manifest=manifest, plan=_read_plan(entry))


def read_whole(entry: Path) -> tuple[StoredEntry, list[GraphImage]]:
    """An entry and its images, as of one moment. Raises RefusalError or OSError.

    A writer may put a new manifest in place while we read, and remove the files that only the old
    one named. Then we start over.
    """
    while True:
        stored = read_entry(entry)
        try:
            return stored, read_images(entry, stored.manifest)
        except (RefusalError, OSError):
            if read_entry(entry).manifest == stored.manifest:
                raise


def read_images(entry: Path, manifest: Manifest) -> list[GraphImage]:
    """Every image that the entry's manifest names, its checksum verified. Raises RefusalError or
    OSError."""
    content = {name: _read_checked(entry, name, facts) for name, facts in manifest.files.items()}
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


def entries(root: Path) -> Sequence[Path]:
    """Folders named like entries. Raises OSError."""
    return sorted(path for path in root.iterdir() if layout.DIGEST.fullmatch(path.name))


def _read_checked(entry: Path, name: str, facts: FileFacts) -> bytes:
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
        return _decode(trust.read_file(entry, layout.PLAN), Plan, entry / layout.PLAN)
    except (OSError, RefusalError):
        return Plan()


def _decode(data: bytes, kind: type[_T], path: Path) -> _T:
    try:
        return msgspec.json.decode(data, type=kind)
    # A thousand opening brackets are no JSON of ours either.
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RefusalError(f"{path} is damaged or of another format: {error}") from error
