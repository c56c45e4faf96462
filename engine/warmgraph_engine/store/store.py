"""The graph cache as the engine uses it: look up once, publish later, never fail a start."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from warmgraph_api.cachekey import CacheKey
from warmgraph_api.report import CacheResult
from warmgraph_api.resource import CacheMode
from warmgraph_engine.backends.base import GraphImage
from warmgraph_engine.store import layout, locks, marks, reading, writing
from warmgraph_engine.store.layout import Plan
from warmgraph_engine.store.misses import Differences, explain, nearest
from warmgraph_engine.store.policy import Retention, User
from warmgraph_engine.store.retention import prune, stored_bytes
from warmgraph_engine.store.trust import RefusalError, describe

FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    result: CacheResult
    images: Sequence[GraphImage] = ()
    plan: Plan = field(default_factory=Plan)
    """Of the entry; on a miss, what traffic wanted of the nearest other one."""
    field: str = ""
    """Of the cache key: what differs from the nearest entry."""
    message: str = ""


def local_user(key: CacheKey) -> User:
    """For whom an engine without a name keeps its entries."""
    return User("local", key.digest()[:12])


class GraphCache(Protocol):
    """A store, or those of several ranks."""

    @property
    def writable(self) -> bool: ...
    def look_up(self) -> Lookup: ...
    def publish(self, images: Sequence[GraphImage], news: Plan) -> str: ...
    def close(self) -> None: ...


class Store:
    """One cache folder and one key."""

    def __init__(
        self,
        root: Path | None,
        key: CacheKey,
        *,
        mode: CacheMode,
        retention: Retention,
        user: User | None = None,
    ) -> None:
        """Without a `user`, whoever runs the engine by hand keeps its newest keys."""
        self._root = None if mode is CacheMode.DISABLED else root
        self._key, self._mode, self._retention = key, mode, retention
        self._user = user or local_user(key)
        self._in_use: int | None = None
        self._inherited = Plan()

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
            return self._read(entry)
        except FileNotFoundError:
            return self._miss(self._root)
        except locks.BusyError as error:
            return Lookup(result=CacheResult.MISS, message=str(error))
        except RefusalError as error:
            return self._refusal(entry, str(error))
        except OSError as error:
            return Lookup(result=CacheResult.REFUSED, message=describe(error))

    def _read(self, entry: Path) -> Lookup:
        self._hold(entry)
        stored, images = reading.read_whole(entry)
        self._mark(entry)
        if images:
            return Lookup(result=CacheResult.HIT, images=images, plan=stored.plan)
        return Lookup(
            result=CacheResult.MISS, plan=stored.plan, message="the entry has no graph yet"
        )

    def publish(self, images: Sequence[GraphImage], news: Plan) -> str:
        """Store images for the next process, and add news to the entry's plan; returns why it
        could not, or an empty text."""
        if self._root is None or not self.writable:
            return f"the cache is {CacheMode.DISABLED if self._root is None else self._mode}"
        try:
            self._root.mkdir(mode=0o750, parents=True, exist_ok=True)
            with locks.writing(self._root):
                self._publish(self._root, images, news)
        except (locks.BusyError, RefusalError) as error:
            return str(error)
        except OSError as error:
            return describe(error)
        return ""

    def _publish(self, root: Path, images: Sequence[GraphImage], news: Plan) -> None:
        entry = root / self._key.digest()
        with suppress(OSError, locks.BusyError):
            self._hold(entry)  # another engine may have published it
        try:
            writing.publish(root, self._key, images, self._plan(entry, news))
        except OSError as error:
            if error.errno not in FULL or not self._make_room(root, images):
                raise
            writing.publish(root, self._key, images, self._plan(entry, news))
        self._hold(entry)
        self._mark(entry)
        prune(root, self._retention, user=self._user)

    def _make_room(self, root: Path, images: Sequence[GraphImage]) -> bool:
        """The volume is smaller than retention believes: what it holds now is all that fits."""
        total = sum(map(stored_bytes, reading.entries(root)))
        size = sum(len(i.document) + sum(map(len, i.binaries.values())) for i in images)
        smaller = replace(self._retention, max_bytes=max(0, total - size))
        return bool(prune(root, smaller, user=self._user))

    def _plan(self, entry: Path, news: Plan) -> Plan:
        """Read under the lock, since other engines add to it too."""
        try:
            return reading.read_entry(entry).plan.plus(news)
        except (OSError, RefusalError):
            return self._inherited.plus(news)

    def _refusal(self, entry: Path, message: str) -> Lookup:
        """Names the field, if the entry says that it was made for another key."""
        differences: Differences = {}
        with suppress(OSError, RefusalError):
            differences = self._key.differences(reading.read_claimed_key(entry))
        if not differences:
            return Lookup(result=CacheResult.REFUSED, message=message)
        return Lookup(
            result=CacheResult.REFUSED,
            field=next(iter(differences)),
            message=f"{message}: {explain(differences)}",
        )

    def _miss(self, root: Path) -> Lookup:
        """Names the fields in which the nearest other entry differs."""
        try:
            other = nearest(root, self._key)
        except FileNotFoundError:
            other = None
        except OSError as error:
            return Lookup(result=CacheResult.MISS, message=describe(error))
        if other is None:
            return Lookup(result=CacheResult.MISS, message="the cache has no entry yet")
        self._inherited = other.plan.without_costs()
        return Lookup(
            result=CacheResult.MISS,
            plan=self._inherited,
            field=next(iter(other.differences)),
            message=explain(other.differences),
        )

    def _hold(self, entry: Path) -> None:
        self.close()
        self._in_use = locks.use(entry)

    def _mark(self, entry: Path) -> None:
        """Let retention know who used it, and when; a read-only volume does without."""
        if not self.writable:
            return
        with suppress(OSError, RefusalError):
            os.utime(entry / layout.MANIFEST)
            marks.mark(entry, self._user)

    def close(self) -> None:
        """Give up the entry in use: it may be pruned."""
        if self._in_use is not None:
            os.close(self._in_use)
            self._in_use = None
