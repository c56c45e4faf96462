"""An image of one static binary, written as an OCI archive with nothing but Python.

The pause image is the only one that the node itself needs; making it here spares it the registry
and any image builder.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path
from typing import Any

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write(archive: Path, *, image: str, binary: Path) -> None:
    """Writes `archive` with one image, named `image`, that runs `binary` as uid 65535."""
    layer = tar_of({binary.name: (binary.read_bytes(), 0o755)})
    packed = gzip.compress(layer, mtime=0)
    config = encode(
        {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": [f"/{binary.name}"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
    )
    manifest = encode(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": described(config, "application/vnd.oci.image.config.v1+json"),
            "layers": [described(packed, "application/vnd.oci.image.layer.v1.tar+gzip")],
        }
    )
    reference = described(manifest, "application/vnd.oci.image.manifest.v1+json")
    # The first name is the format's, the second the one that containerd reads.
    reference["annotations"] = {
        "org.opencontainers.image.ref.name": image.rpartition(":")[2],
        "io.containerd.image.name": image,
    }
    files = {
        "oci-layout": encode({"imageLayoutVersion": "1.0.0"}),
        "index.json": encode({"schemaVersion": 2, "manifests": [reference]}),
    }
    for blob in (packed, config, manifest):
        files[f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}"] = blob
    archive.write_bytes(tar_of({name: (data, 0o644) for name, data in files.items()}))


def tar_of(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A tar file of `{path: (content, mode)}`, the same bytes every time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def encode(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def described(blob: bytes, media_type: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}
