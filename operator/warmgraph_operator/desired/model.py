"""Where a model is: `pvc://CLAIM/PATH` or `file:///PATH`."""

from __future__ import annotations

from warmgraph_api import ports

_CLAIM_SCHEME = "pvc://"
_FILE_SCHEME = "file://"


def model_claim(uri: str) -> str | None:
    """Name of the claim that holds the model, if one does."""
    if not uri.startswith(_CLAIM_SCHEME):
        return None
    return uri.removeprefix(_CLAIM_SCHEME).split("/", 1)[0]


def model_directory(uri: str) -> str:
    """The model's folder as the engine sees it."""
    if uri.startswith(_CLAIM_SCHEME):
        return f"{ports.MODEL_DIRECTORY}/{uri.removeprefix(_CLAIM_SCHEME)}"
    return uri.removeprefix(_FILE_SCHEME)
