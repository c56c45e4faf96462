"""The graph cache as the engine uses it: look up once, publish later, never fail a start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warmgraph_api.cachekey import CacheKey
from warmgraph_api.report import CacheResult
from warmgraph_api.resource import CacheMode
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.store import layout, locks, reading, writing
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.maintenance import prune
from warmgraph_engine.store.trust import RefusalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    result: CacheResult
    images: Sequence[GraphImage] = ()
    plan: Plan = field(default_factory=Plan)
    field: str = ""
    """Of the cache key: what differs from the nearest entry."""
    message: str = ""


class Store:
    """One cache folder and one key."""

    def __init__(
        self, root: Path | None, key: CacheKey, *, mode: CacheMode, keep_entries: int
    ) -> None:
        self._root = None if mode is CacheMode.DISABLED else root
        self._key, self._mode, self._keep = key, mode, keep_entries
        self._in_use: int | None = None

    @property
    def writable(self) -> bool:
        """Whether publishing is wanted at all."""
        return self._root is not None and self._mode is CacheMode.READ_WRITE

    def look_up(self) -> Lookup:
        """What the cache has for the key. Never raises: without a usable entry graphs are
        captured."""
        if self._root is None:
            return Lookup(result=CacheResult.DISABLED)
        entry = self._root / self._key.digest()
        try:
            self._hold(entry)
            stored = reading.read_entry(entry)
            images = reading.read_images(entry, stored.manifest)
        except FileNotFoundError:
            return self._miss()
        except locks.BusyError as error:
            return Lookup(result=CacheResult.MISS, message=str(error))
        except RefusalError as error:
            return Lookup(result=CacheResult.REFUSED, message=str(error))
        except OSError as error:
            return Lookup(result=CacheResult.REFUSED, message=_describe(error))
        self._touch(entry)
        return Lookup(result=CacheResult.HIT, images=images, plan=stored.plan)

    def publish(self, images: Iterable[GraphImage], plan: Plan) -> str:
        """Store images for the next process; returns why it could not, or an empty text."""
        if self._root is None or not self.writable:
            return f"the cache is {CacheMode.DISABLED if self._root is None else self._mode}"
        try:
            self._root.mkdir(mode=0o750, parents=True, exist_ok=True)
            with locks.writing(self._root):
                writing.publish(self._root, self._key, images, plan)
                self._hold(self._root / self._key.digest())
                prune(self._root, keep=self._keep)
        except (locks.BusyError, RefusalError) as error:
            return str(error)
        except OSError as error:
            return _describe(error)
        return ""

    def _miss(self) -> Lookup:
        """Names the fields in which the nearest other entry differs."""
        assert self._root is not None
        nearest: dict[str, tuple[str | int, str | int]] | None = None
        try:
            for entry in reading.entries(self._root):
                try:
                    differences = self._key.differences(reading.read_key(entry))
                except (OSError, RefusalError):
                    continue
                if nearest is None or len(differences) < len(nearest):
                    nearest = differences
        except FileNotFoundError:
            nearest = None
        except OSError as error:
            return Lookup(result=CacheResult.MISS, message=_describe(error))
        if not nearest:
            return Lookup(result=CacheResult.MISS, message="the cache has no entry yet")
        message = "; ".join(
            f"{name} is {_short(ours)}, stored graphs have {_short(theirs)}"
            for name, (ours, theirs) in nearest.items()
        )
        return Lookup(result=CacheResult.MISS, field=next(iter(nearest)), message=message)

    def _hold(self, entry: Path) -> None:
        if self._in_use is not None:
            os.close(self._in_use)
            self._in_use = None
        self._in_use = locks.use(entry)

    def _touch(self, entry: Path) -> None:
        """Let retention know when it was last used; a read-only volume does without."""
        try:
            os.utime(entry / layout.MANIFEST)
        except OSError:
            return

    def close(self) -> None:
        """Give up the entry in use: it may be pruned."""
        if self._in_use is not None:
            os.close(self._in_use)
            self._in_use = None


def _short(value: str | int) -> str:
    """Digests are told apart by their first characters; people need no more."""
    text = str(value) or "empty"
    return text[:12] if layout.DIGEST.fullmatch(text) else text


def _describe(error: OSError) -> str:
    return f"{error.filename or 'the cache'}: {error.strerror or error}"
