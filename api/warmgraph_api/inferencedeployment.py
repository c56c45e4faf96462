"""The InferenceDeployment itself: what `kubectl get -o json` shows, as one type."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from warmgraph_api.labels import API_VERSION, KIND
from warmgraph_api.resource.base import Resource, rule, rules
from warmgraph_api.resource.metadata import ObjectMeta
from warmgraph_api.resource.spec import SPEC_RULES, Spec
from warmgraph_api.status import Status

MAX_NAME_LENGTH = 51
"""63, which a label value and a Service name may have, less `-graph-cache`, the longest suffix
of a derived object."""

NAME_RULES = rules(
    rule(
        f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        f"metadata.name must have at most {MAX_NAME_LENGTH} characters, so that the objects "
        "derived from it can have names and labels of their own",
    ),
    rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must start with a letter and hold only lower case letters, digits and "
        "'-', since a Service gets the same name",
    ),
)


class InferenceDeployment(Resource, frozen=True, kw_only=True):
    """A model served by pods that are ready when their graphs are."""

    api_version: str = API_VERSION
    kind: str = KIND
    metadata: ObjectMeta
    spec: Annotated[Spec, Meta(extra_json_schema=SPEC_RULES)]
    status: Status = msgspec.field(default_factory=Status)
