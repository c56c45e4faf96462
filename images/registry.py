"""Registries: where images go, and whether they are there already."""

from __future__ import annotations

import urllib.error
import urllib.request

from images.errors import ImageError

# The registry of the local cluster (devcluster), on loopback and without TLS.
LOCAL = "localhost:5050"

# Either kind of manifest that the builders push.
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)


def local_has(name: str) -> bool:
    """Whether the local cluster's registry has the image `localhost:5050/repository:tag`. Raises
    ImageError where no registry answers."""
    repository, _, tag = name.removeprefix(f"{LOCAL}/").partition(":")
    request = urllib.request.Request(
        f"http://{LOCAL}/v2/{repository}/manifests/{tag}",
        headers={"Accept": MANIFESTS},
        method="HEAD",
    )
    try:
        with urllib.request.urlopen(request, timeout=10):
            return True
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise ImageError(f"the registry at {LOCAL} answers {error}") from None
    except OSError as error:
        raise ImageError(
            f"no registry answers at {LOCAL} ({error}): start the local cluster with "
            f"`python -m devcluster up`"
        ) from None
