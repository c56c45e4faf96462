"""File names of an entry and the types of its JSON files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import chain

import msgspec

from warmgraph_api.report import StepKind
from warmgraph_engine.answer import Answer

FORMAT = 1
"""Of the entry; part of the cache key and of the manifest."""

KEY = "key.json"
MANIFEST = "manifest.json"
PLAN = "plan.json"
LOCK = ".lock"
STAGING_PREFIX = ".staging-"
TRASH_PREFIX = ".trash-"

DIGEST = re.compile(r"[0-9a-f]{64}")
FILE = re.compile(r"(images|binaries)/[a-z0-9][a-z0-9.-]*|key\.json")
"""Paths that a manifest may name: nothing outside its own entry."""


class FileFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sha256: str
    bytes: int


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: StepKind
    size: int
    file: str
    binaries: list[str]
    """SHA-256 of each kernel binary that it needs."""
    answer: Answer | None = None
    """Here, and not in a file of its own: it changes without the image, and the manifest is what
    is replaced as a whole."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int
    key: str
    """Digest of the key: an entry copied under another name is refused."""
    files: dict[str, FileFacts]
    images: list[ImageFacts]
    checksum: str = ""
    """Of the manifest itself, with this field empty."""

    def sealed(self) -> Manifest:
        """With its checksum."""
        open_ = msgspec.structs.replace(self, checksum="")
        return msgspec.structs.replace(open_, checksum=sha256(msgspec.json.encode(open_)))

    def contradiction(self) -> str:
        """What no writer of ours would have written, or empty. Names follow from contents, so
        that no file can stand for another bucket's graph or another kernel."""
        return next(chain(self._wrong_files(), self._wrong_images()), "")

    def _wrong_files(self) -> Iterator[str]:
        for name, facts in self.files.items():
            if not FILE.fullmatch(name):
                yield f"names {name!r}, which is no file of an entry"
            if name.startswith("binaries/") and name != f"binaries/{facts.sha256}":
                yield f"gives {name} the content of another binary"

    def _wrong_images(self) -> Iterator[str]:
        seen: set[tuple[StepKind, int]] = set()
        for image in self.images:
            if (image.kind, image.size) in seen:
                yield f"has two graphs of {image.kind} {image.size}"
            seen.add((image.kind, image.size))
            for name in (image.file, *(f"binaries/{digest}" for digest in image.binaries)):
                if name not in self.files:
                    yield f"has no checksum of {name}"
            document = self.files.get(image.file)
            if document and image.file != image_file(image.kind, image.size, document.sha256):
                yield f"gives {image.kind} {image.size} the graph {image.file}"


class PlannedBucket(msgspec.Struct, frozen=True, kw_only=True):
    kind: StepKind
    size: int
    milliseconds: float = 0.0
    """What its capture took."""
    bytes: int = 0
    hits: int = 0
    """Steps that wanted this bucket, over all processes that published here."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    buckets: list[PlannedBucket] = []

    def hits(self) -> dict[tuple[StepKind, int], int]:
        """Steps that wanted each bucket."""
        return {(bucket.kind, bucket.size): bucket.hits for bucket in self.buckets}

    def plus(self, news: Plan) -> Plan:
        """With what one process has to add: its hits are added, its costs replace the old."""
        merged = {(bucket.kind, bucket.size): bucket for bucket in self.buckets}
        for new in news.buckets:
            known = merged.get((new.kind, new.size), PlannedBucket(kind=new.kind, size=new.size))
            merged[(new.kind, new.size)] = PlannedBucket(
                kind=new.kind,
                size=new.size,
                milliseconds=new.milliseconds or known.milliseconds,
                bytes=new.bytes or known.bytes,
                hits=known.hits + new.hits,
            )
        return Plan(buckets=list(merged.values()))

    def without_costs(self) -> Plan:
        """For an engine with another key: what traffic wants stays, what graphs cost does not."""
        return Plan(
            buckets=[PlannedBucket(kind=b.kind, size=b.size, hits=b.hits) for b in self.buckets]
        )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def image_file(kind: StepKind, size: int, digest: str) -> str:
    """`digest` is the document's SHA-256 in hex."""
    return f"images/{kind}-{size}-{digest[:16]}.json"
