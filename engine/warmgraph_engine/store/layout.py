"""File names of an entry and the types of its JSON files."""

from __future__ import annotations

import hashlib
import re

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


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def image_file(kind: StepKind, size: int, document: bytes) -> str:
    return f"images/{kind}-{size}-{sha256(document)[:16]}.json"
