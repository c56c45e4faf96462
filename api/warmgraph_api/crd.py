"""Writes the CustomResourceDefinition and the references of fields and cache key from the types.

    python -m warmgraph_api.crd           # write the files
    python -m warmgraph_api.crd --check   # exit 1 with a diff if a file is not up to date

A development tool: nothing at run time imports it, and PyYAML is not installed in the images.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from warmgraph_api import labels
from warmgraph_api.inferencedeployment import NAME_RULES, InferenceDeployment
from warmgraph_api.keyreference import key_reference
from warmgraph_api.reference import reference
from warmgraph_api.structural import Schema, structural_schema, without_defaults

CRD_PATH = Path(f"crds/{labels.GROUP}_{labels.PLURAL}.yaml")
# helm reads nothing outside of a chart's folder.
CHART_CRD_PATH = Path("charts/warmgraph/files/crd.yaml")
REFERENCE_PATH = Path("docs/api-reference.md")
KEY_REFERENCE_PATH = Path("docs/cache-key.md")

HEADER = """\
# Generated from api/warmgraph_api by `python -m warmgraph_api.crd`; edit the types instead.
"""


def condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


# Columns of `kubectl get`; those of priority 1 show with `-o wide`.
COLUMNS = [
    ("Ready", "string", condition("Ready", "status"), 0),
    ("Reason", "string", condition("Ready", "reason"), 0),
    ("Graphs", "string", ".status.graphs.summary", 0),
    ("Replicas", "integer", ".spec.replicas", 0),
    ("Ready Replicas", "integer", ".status.readyReplicas", 0),
    ("Revision", "string", ".spec.model.revision", 0),
    ("Serving", "string", condition("Serving", "status"), 1),
    ("Cache", "string", ".status.cache.result", 1),
    ("URL", "string", ".status.url", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
]


def object_schema() -> Schema:
    """Schema of the whole object, as it stands in the CRD."""
    schema = structural_schema(InferenceDeployment)
    properties = schema["properties"]
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string"}
    # The API server has its own schema of the metadata and takes no other.
    properties["metadata"] = {"type": "object"}
    # The operator writes a status in full, so there is nothing to fill in.
    properties["status"] = without_defaults(properties["status"])
    return schema | {"required": ["spec"]} | NAME_RULES


def manifest() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{labels.PLURAL}.{labels.GROUP}"},
        "spec": {
            "group": labels.GROUP,
            "names": {
                "kind": labels.KIND,
                "listKind": f"{labels.KIND}List",
                "plural": labels.PLURAL,
                "singular": labels.SINGULAR,
                "shortNames": [labels.SHORT_NAME],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": labels.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": object_schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "priority": priority}
                        for name, kind, path, priority in COLUMNS
                    ],
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """YAML with list items indented below their key and no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, indentless=False)

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def as_yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def generated() -> dict[Path, str]:
    """The generated files, by their path in the repository."""
    crd = HEADER + as_yaml(manifest())
    return {
        CRD_PATH: crd,
        CHART_CRD_PATH: crd,
        REFERENCE_PATH: reference(object_schema()),
        KEY_REFERENCE_PATH: key_reference(),
    }


def drift(root: Path) -> str:
    """A diff from the files below `root` to what they should be; empty if there is none."""
    lines: list[str] = []
    for path, wanted in generated().items():
        found = (root / path).read_text() if (root / path).exists() else ""
        lines += difflib.unified_diff(
            found.splitlines(keepends=True),
            wanted.splitlines(keepends=True),
            fromfile=str(path),
            tofile=f"{path} (generated)",
        )
    return "".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generate the CRD and the references.")
    parser.add_argument("--check", action="store_true", help="only compare, exit 1 on drift")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository")
    options = parser.parse_args(arguments)
    if options.check:
        difference = drift(options.root)
        sys.stdout.write(difference)
        if difference:
            sys.stderr.write("Generated files are out of date: python -m warmgraph_api.crd\n")
        return 1 if difference else 0
    for path, text in generated().items():
        (options.root / path).parent.mkdir(parents=True, exist_ok=True)
        (options.root / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
