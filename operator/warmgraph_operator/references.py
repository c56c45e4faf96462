"""Names of other objects in what a pod template embeds of Kubernetes' own types.

The CRD takes those as they come and the API server judges them in the Deployment, so here they may
have any shape. What names no object is passed over: the Deployment's refusal says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from warmgraph_api.resource import Template

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Of an object, as the API server has it. Another one in the path of a request would lead
elsewhere."""


def claims_of(template: Template) -> tuple[str, ...]:
    """Names of the claims that the volumes mount, sorted."""
    found = (_at(volume, "persistentVolumeClaim", "claimName") for volume in template.volumes)
    return tuple(sorted({name for name in found if _is_name(name)}))


def config_maps_of(template: Template) -> tuple[str, ...]:
    """Names of the ConfigMaps that the environment or the volumes refer to, sorted."""
    return tuple(sorted({name for name in _config_maps(template) if _is_name(name)}))


def _config_maps(template: Template) -> Iterator[Any]:
    for variable in template.env:
        yield _at(variable, "valueFrom", "configMapKeyRef", "name")
    for source in template.env_from:
        yield _at(source, "configMapRef", "name")
    for volume in template.volumes:
        yield _at(volume, "configMap", "name")
        sources = _at(volume, "projected", "sources")
        for source in sources if isinstance(sources, list) else ():
            yield _at(source, "configMap", "name")


def _at(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None
