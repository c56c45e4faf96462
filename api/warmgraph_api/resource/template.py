"""`spec.template`: what else the model pods need."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from warmgraph_api import ports
from warmgraph_api.resource.base import (
    AnyQuantity,
    OptionalObjectName,
    Resource,
    embedded,
    keyed_by,
    rule,
    rules,
)

# The API server bounds the cost of rules by the largest object that the schema allows, so every
# list and map has a limit. These are above what pods have in practice.
MOST_RESOURCE_NAMES = 12
MOST_LABELS = 64
MOST_ITEMS = 64
MOST_ENV = 256

RESERVED_VOLUMES = ["run", "tmp", "cache", "model"]
RESERVED_PATHS = [ports.RUN_DIRECTORY, "/tmp", ports.CACHE_DIRECTORY]  # noqa: S108
"""Volumes that the operator gives every model pod, and where (docs/architecture.md)."""

Text = Annotated[str, Meta(max_length=253)]
Name = {"type": "string", "minLength": 1, "maxLength": 253}

# Linux takes no longer one (MAX_ARG_STRLEN). A number or a boolean that lacks its quotes is the
# mistake everybody makes, and shows here rather than in a pod that is never made.
EnvValue = {"type": "string", "maxLength": 131_072}

OwnKeys = rules(
    rule(
        "!self.exists(key, key.startsWith('warmgraph.dev/')"
        " || key.startsWith('app.kubernetes.io/'))",
        "keys under warmgraph.dev/ and app.kubernetes.io/ are set by the operator: use others",
    )
)


class Resources(Resource, frozen=True, kw_only=True):
    """Resources of the engine's container."""

    requests: Annotated[
        dict[str, AnyQuantity],
        Meta(
            max_length=MOST_RESOURCE_NAMES,
            description="What the scheduler reserves; write 500m for half a core.",
        ),
    ] = {}
    limits: Annotated[
        dict[str, AnyQuantity],
        Meta(
            max_length=MOST_RESOURCE_NAMES,
            description=(
                "What the container may not exceed. With device cuda, and no GPU named here, "
                "nvidia.com/gpu becomes engine.tensorParallelSize."
            ),
        ),
    ] = {}


def _request_within_limit(name: str) -> dict[str, str]:
    """Kubernetes would refuse the pods; here the user hears it at once."""
    request, limit = f"string(self.requests['{name}'])", f"string(self.limits['{name}'])"
    return rule(
        f"!('{name}' in self.requests) || !('{name}' in self.limits)"
        f" || !isQuantity({request}) || !isQuantity({limit})"
        f" || !quantity({request}).isGreaterThan(quantity({limit}))",
        f"the request for {name} is above its limit: raise the limit or lower the request",
        at=".requests",
    )


# One by one, since a rule over every name would cost the API server more than it allows.
RESOURCES_RULES = rules(_request_within_limit("cpu"), _request_within_limit("memory"))


class Template(Resource, frozen=True, kw_only=True):
    """What else the model pods need: resources, placement, environment, volumes."""

    labels: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(
            max_length=MOST_LABELS,
            description="Labels of the pods, beside the operator's own.",
            extra_json_schema=OwnKeys,
        ),
    ] = {}
    annotations: Annotated[
        dict[str, Annotated[str, Meta(max_length=65_536)]],
        Meta(
            max_length=MOST_LABELS,
            description="Annotations of the pods.",
            extra_json_schema=OwnKeys,
        ),
    ] = {}
    resources: Annotated[Resources, Meta(extra_json_schema=RESOURCES_RULES)] = msgspec.field(
        default_factory=Resources
    )
    node_selector: Annotated[
        dict[str, Annotated[str, Meta(max_length=63)]],
        Meta(max_length=MOST_LABELS, description="Labels that a node must have."),
    ] = {}
    tolerations: Annotated[
        list[Annotated[dict[str, Any], embedded("Toleration")]],
        Meta(max_length=MOST_ITEMS, description="Taints of nodes that the pods accept."),
    ] = []
    affinity: Annotated[
        dict[str, Any],
        embedded("Affinity"),
        Meta(description="Affinity to nodes and other pods."),
    ] = {}
    topology_spread_constraints: Annotated[
        list[Annotated[dict[str, Any], embedded("TopologySpreadConstraint")]],
        Meta(max_length=MOST_ITEMS, description="How the pods spread over nodes and zones."),
    ] = []
    env: Annotated[
        list[
            Annotated[
                dict[str, Any],
                embedded("EnvVar", required={"name": Name}, optional={"value": EnvValue}),
            ]
        ],
        Meta(
            max_length=MOST_ENV,
            description="Environment of the engine's container. A change rolls the pods.",
            extra_json_schema=keyed_by("name"),
        ),
    ] = []
    env_from: Annotated[
        list[Annotated[dict[str, Any], embedded("EnvFromSource")]],
        Meta(
            max_length=MOST_ITEMS,
            description=(
                "ConfigMaps and Secrets whose keys become environment. A change of their content "
                "rolls the pods."
            ),
        ),
    ] = []
    volumes: Annotated[
        list[
            Annotated[
                dict[str, Any],
                embedded(
                    "Volume",
                    required={
                        "name": Name
                        | rules(
                            rule(
                                f"!(self in {RESERVED_VOLUMES})",
                                "the operator gives every pod volumes named "
                                f"{', '.join(RESERVED_VOLUMES)}: choose another name",
                            )
                        )
                    },
                ),
            ]
        ],
        Meta(
            max_length=MOST_ITEMS,
            description="Further volumes of the pods.",
            extra_json_schema=keyed_by("name"),
        ),
    ] = []
    volume_mounts: Annotated[
        list[
            Annotated[
                dict[str, Any],
                embedded(
                    "VolumeMount",
                    required={
                        "name": Name,
                        "mountPath": {"type": "string", "minLength": 1, "maxLength": 1024}
                        | rules(
                            rule(
                                f"!(self in {RESERVED_PATHS})",
                                "the operator mounts its own volumes at "
                                f"{', '.join(RESERVED_PATHS)}: choose another path",
                            ),
                            # One way to write a path, or the rule above could be got around.
                            rule(
                                "self.matches('^(/[^/:]+)+$') && !self.matches('/[.][.]?(/|$)')",
                                "must be an absolute path without ':', '//', '.' and '..', and "
                                "without a '/' at its end",
                            ),
                        ),
                    },
                ),
            ]
        ],
        Meta(
            max_length=MOST_ITEMS,
            description="Where the engine's container sees them.",
            extra_json_schema=keyed_by("mountPath"),
        ),
    ] = []
    security_context: Annotated[
        dict[str, Any],
        embedded("PodSecurityContext"),
        Meta(description="Laid over the pods' own restricted one, such as a user id."),
    ] = {}
    image_pull_secrets: Annotated[
        list[Annotated[dict[str, Any], embedded("LocalObjectReference", required={"name": Name})]],
        Meta(
            max_length=MOST_ITEMS,
            description="Secrets for private image registries.",
            extra_json_schema=keyed_by("name"),
        ),
    ] = []
    priority_class_name: Annotated[
        OptionalObjectName, Meta(description="PriorityClass of the pods.")
    ] = ""
    runtime_class_name: Annotated[
        OptionalObjectName, Meta(description="RuntimeClass of the pods, such as nvidia.")
    ] = ""
    scheduler_name: Annotated[
        OptionalObjectName, Meta(description="Scheduler of the pods; the default one if empty.")
    ] = ""
    termination_grace_period_seconds: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Longest that a stopping pod may finish the requests it has.",
        ),
    ] = 120


TEMPLATE_RULES = rules(
    rule(
        f"self.volumeMounts.all(mount, mount.name in {RESERVED_VOLUMES}"
        " || self.volumes.exists(volume, volume.name == mount.name))",
        "template.volumeMounts names a volume that template.volumes does not have",
        at=".volumeMounts",
    ),
)
