"""Writing entries so that they are there whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from warmgraph_api.cachekey import CacheKey
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.store import layout
from warmgraph_engine.store.layout import FileFacts, ImageFacts, Manifest, Plan
from warmgraph_engine.store.reading import read_entry, read_images
from warmgraph_engine.store.trust import RefusalError


def publish(root: Path, key: CacheKey, images: Iterable[GraphImage], plan: Plan) -> None:
    """Write the images of a key, beside those that its entry may have already.

    Every file is read back before the manifest names it. The caller holds locks.writing(root).
    Raises OSError, or RefusalError if what was read is not what was written, and leaves no entry
    that would not load.
    """
    entry = root / key.digest()
    stored = _stored(entry)
    merged = {(image.kind, image.size): image for image in stored or ()}
    merged.update({(image.kind, image.size): image for image in images})
    files, manifest = _contents(key, list(merged.values()))
    remove_leftovers(root)
    if stored is not None:
        _grow(entry, files, manifest, plan)
        return
    staging = root / f"{layout.STAGING_PREFIX}{secrets.token_hex(8)}"
    try:
        _write_new(staging, files, manifest, plan)
        if os.path.lexists(entry):  # damaged, or not to be trusted
            entry.rename(root / f"{layout.TRASH_PREFIX}{secrets.token_hex(8)}")
        staging.rename(entry)
        _sync_folder(root)
    finally:
        remove_leftovers(root)


def remove_leftovers(root: Path) -> None:
    """Remove what killed writers left. The caller holds locks.writing(root), so nobody is at
    work in such a folder."""
    for path in root.iterdir():
        if path.name.startswith((layout.STAGING_PREFIX, layout.TRASH_PREFIX)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:  # it was put there in place of an entry
                path.unlink(missing_ok=True)


def replace_file(folder: Path, name: str, data: bytes) -> None:
    """Write a file whole, over an old one if there is one."""
    temporary = folder / f"{name}.{secrets.token_hex(4)}.new"
    try:
        _write_file(temporary, data)
        temporary.rename(folder / name)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder((folder / name).parent)


def _stored(entry: Path) -> list[GraphImage] | None:
    """Images of a sound entry; None of any other."""
    try:
        return read_images(entry, read_entry(entry).manifest)
    except (OSError, RefusalError):
        return None


def _contents(key: CacheKey, images: list[GraphImage]) -> tuple[dict[str, bytes], Manifest]:
    files = {layout.KEY: msgspec.json.format(msgspec.json.encode(key), indent=2)}
    facts = []
    for image in images:
        name = layout.image_file(image.kind, image.size, layout.sha256(image.document))
        files[name] = image.document
        files.update({f"binaries/{digest}": data for digest, data in image.binaries.items()})
        facts.append(
            ImageFacts(
                kind=image.kind,
                size=image.size,
                file=name,
                binaries=sorted(image.binaries),
                answer=image.answer,
            )
        )
    checksums = {
        name: FileFacts(sha256=layout.sha256(data), bytes=len(data)) for name, data in files.items()
    }
    manifest = Manifest(format=layout.FORMAT, key=key.digest(), files=checksums, images=facts)
    return files, manifest.sealed()


def _write_new(staging: Path, files: dict[str, bytes], manifest: Manifest, plan: Plan) -> None:
    staging.mkdir(mode=0o750)
    for folder in ("images", "binaries"):
        (staging / folder).mkdir(mode=0o750)
    for name, data in files.items():
        _write_file(staging / name, data)
    _write_file(staging / layout.PLAN, _json(plan))
    for folder in ("images", "binaries"):
        _sync_folder(staging / folder)
    read_images(staging, manifest)
    _write_file(staging / layout.MANIFEST, _json(manifest))
    _sync_folder(staging)


def _grow(entry: Path, files: dict[str, bytes], manifest: Manifest, plan: Plan) -> None:
    known = read_entry(entry).manifest.files
    for name, data in files.items():
        if name not in known:  # a file that is there may be what a killed writer left
            replace_file(entry, name, data)
    read_images(entry, manifest)
    replace_file(entry, layout.PLAN, _json(plan))
    replace_file(entry, layout.MANIFEST, _json(manifest))
    old = [*(entry / "images").iterdir(), *(entry / "binaries").iterdir(), *entry.glob("*.new")]
    for path in old:
        if str(path.relative_to(entry)) not in manifest.files:
            with suppress(OSError):  # open elsewhere on NFS, say; the next writer tries again
                path.unlink()


def _json(value: Manifest | Plan) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _write_file(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o640), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Make renames and new names in it survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
