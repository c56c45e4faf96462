"""helm, as the chart's tests call it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "warmgraph"

Object = dict[str, Any]


def find() -> str | None:
    """helm on PATH, or the one that devcluster has built."""
    if found := shutil.which("helm"):
        return found
    from devcluster import artifacts

    built = artifacts.HELM.folder / "helm"
    return str(built) if built.exists() else None


def values() -> Object:
    """The chart's defaults."""
    loaded: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    return loaded


class HelmError(Exception):
    """What helm printed when it failed."""


@dataclass(frozen=True)
class Helm:
    program: str

    def run(self, *arguments: str, stdin: str = "") -> str:
        result = subprocess.run(
            [self.program, *arguments], input=stdin, capture_output=True, text=True, check=False
        )
        if result.returncode != 0:
            raise HelmError(result.stdout + result.stderr)
        return result.stdout

    def text(self, changes: Object | None = None, *, namespace: str = "system") -> str:
        """Rendered manifests, with `changes` on top of the default values."""
        return self.run(
            *("template", "release", str(CHART), "--namespace", namespace, "--values", "-"),
            stdin=yaml.safe_dump(changes or {}),
        )

    def render(self, changes: Object | None = None) -> list[Object]:
        return [found for found in yaml.safe_load_all(self.text(changes)) if found]


def one(objects: list[Object], kind: str, name: str) -> Object:
    """The only object of a kind whose name ends in `name`."""
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(name))
    return found


def pod_templates(objects: list[Object]) -> list[Object]:
    """The pod, or pod template, of everything that runs."""
    return [o if o["kind"] == "Pod" else o["spec"]["template"] for o in objects if is_workload(o)]


def is_workload(found: Object) -> bool:
    return found["kind"] == "Pod" or "template" in (found.get("spec") or {})


# Everything that values can switch on.
EVERYTHING: Object = {
    "networkPolicy": {
        "enabled": True,
        "modelNamespaces": ["models"],
        "clients": [{"namespaceSelector": {"matchLabels": {"team": "web"}}}],
        "monitoring": [{"namespaceSelector": {"matchLabels": {"team": "observability"}}}],
    },
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "rules": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
