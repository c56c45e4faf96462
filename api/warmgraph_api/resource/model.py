"""`spec.model`: which checkpoint is served."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from warmgraph_api.resource.base import NO_WHITE_SPACE, Resource, rule, rules

URI_PATTERN = "^(file:///[^[:space:]]+|pvc://[a-z0-9]([-a-z0-9.]*[a-z0-9])?(/[^[:space:]]*)?)$"


class Model(Resource, frozen=True, kw_only=True):
    """Which checkpoint is served, and under which name."""

    uri: Annotated[
        str,
        Meta(
            max_length=1024,
            description=(
                "Folder of a Hugging Face checkpoint: `pvc://CLAIM/PATH` for a folder on a "
                "PersistentVolumeClaim of the same namespace, or `file:///PATH` for one that the "
                "image (or a volume of `template`) carries."
            ),
            extra_json_schema=rules(
                rule(
                    f"self.matches('{URI_PATTERN}')",
                    "model.uri must be pvc://CLAIM/PATH or file:///PATH, without white space",
                ),
                rule(
                    "!self.split('/').exists(part, part == '..')",
                    "model.uri must not climb out of its folder with '..'",
                ),
            ),
        ),
    ]
    revision: Annotated[
        str,
        Meta(
            max_length=128,
            description=(
                "Free text that names this version of the model, for example a commit. Changing "
                "it rolls the pods, also when the URI stays the same."
            ),
        ),
    ] = ""
    served_name: Annotated[
        str,
        Meta(
            max_length=253,
            description="Name of the model in the OpenAI API; the resource's own name if empty.",
            extra_json_schema=rules(
                rule(NO_WHITE_SPACE, "model.servedName must not contain white space")
            ),
        ),
    ] = ""
