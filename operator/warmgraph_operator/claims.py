"""Why a volume claim keeps pods waiting."""

from __future__ import annotations

from collections.abc import Iterator

from warmgraph_api.reasons import Reason
from warmgraph_operator.desired.model import model_claim
from warmgraph_operator.desired.support import wants_claim
from warmgraph_operator.kinds import Object
from warmgraph_operator.observed import Observed
from warmgraph_operator.problem import Problem
from warmgraph_operator.references import claims_of
from warmgraph_operator.resource import InferenceDeployment

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def mounted_claims(infd: InferenceDeployment) -> tuple[str, ...]:
    """Names of the claims that must exist before a pod can start, but for the created one."""
    return tuple(sorted(set(_mounted(infd))))


def _mounted(infd: InferenceDeployment) -> Iterator[str]:
    model = model_claim(infd.spec.model.uri)
    if model:
        yield model
    if infd.spec.graph_cache.volume.claim_name and infd.spec.graph_cache.mode != "Disabled":
        yield infd.spec.graph_cache.volume.claim_name
    yield from claims_of(infd.spec.template)


def diagnose_claims(infd: InferenceDeployment, observed: Observed) -> Problem | None:
    """The first claim that is missing, or pending for a reason that will not pass by itself."""
    for name in mounted_claims(infd):
        claim = observed.claims.get(name)
        if claim is None:
            return Problem.of(
                Reason.CLAIM_MISSING,
                f"PersistentVolumeClaim {name} does not exist in namespace "
                f"{infd.metadata.namespace}: create it, or name another one in the spec",
            )
        problem = _pending(claim, observed)
        if problem:
            return problem
    if wants_claim(infd) and observed.cache_claim is not None:
        return _pending(observed.cache_claim, observed)
    return None


def is_pending(claim: Object | None) -> bool:
    return claim is not None and (claim.get("status") or {}).get("phase") == "Pending"


def _pending(claim: Object, observed: Observed) -> Problem | None:
    if not is_pending(claim):
        return None
    name, wanted = claim["metadata"]["name"], claim["spec"].get("storageClassName")
    classes = observed.storage_classes
    if claim["spec"].get("volumeName") or wanted == "":
        return _waiting(name, observed)
    if classes is None:
        return _waiting(name, observed)
    if wanted is None and not any(_is_default(entry) for entry in classes):
        return Problem.of(
            Reason.STORAGE_CLASS_MISSING,
            f"PersistentVolumeClaim {name} names no StorageClass and the cluster has no default "
            f"one: set graphCache.volume.storageClassName ({_names(classes)})",
        )
    chosen = next((entry for entry in classes if entry["metadata"]["name"] == wanted), None)
    if wanted is not None and chosen is None:
        return Problem.of(
            Reason.STORAGE_CLASS_MISSING,
            f"PersistentVolumeClaim {name} wants StorageClass {wanted}, which does not exist: set "
            f"graphCache.volume.storageClassName ({_names(classes)})",
        )
    return _waiting(name, observed)


def _waiting(name: str, observed: Observed) -> Problem | None:
    """A claim that waits is normal: for its first pod, or for a provisioner at work. A warning
    event is what tells a failing provisioner from a slow one."""
    warning = observed.warnings.get(name)
    if not warning:
        return None
    return Problem.of(Reason.CLAIM_PENDING, f"PersistentVolumeClaim {name} is not bound: {warning}")


def _is_default(storage_class: Object) -> bool:
    notes = storage_class["metadata"].get("annotations") or {}
    return notes.get(DEFAULT_CLASS) == "true"


def _names(classes: tuple[Object, ...]) -> str:
    names = sorted(entry["metadata"]["name"] for entry in classes)
    return f"there are: {', '.join(names)}" if names else "there is none at all; create one"
