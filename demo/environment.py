"""The cluster and the images: made here, or given by the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from demo.console import fail, say
from demo.kube import ROOT, Cluster

IMAGE_VARIABLES = ("CONTROL_PLANE_IMAGE", "ENGINE_IMAGE", "DEMO_MODEL_IMAGE")


def prepare() -> Cluster:
    """A cluster that runs, with the images it needs."""
    return _given() if has_own_cluster() else _local()


def expand_home() -> None:
    """dash leaves the ~ of `make demo KUBECONFIG=~/.kube/config` as it is, and so does kubectl."""
    given = os.environ.get("KUBECONFIG")
    if given:
        files = (str(Path(file).expanduser()) for file in given.split(os.pathsep) if file)
        os.environ["KUBECONFIG"] = os.pathsep.join(files)


def has_own_cluster() -> bool:
    """Whether KUBECONFIG names a cluster of the user's, not the one that devcluster made."""
    given = os.environ.get("KUBECONFIG")
    if not given:
        return False
    # Fails where no local cluster was made yet: then the given one is certainly another.
    ours = subprocess.run(
        [sys.executable, "-m", "devcluster", "kubeconfig"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    return given != ours.stdout.strip()


def _given() -> Cluster:
    missing = [name for name in IMAGE_VARIABLES if not os.environ.get(name)]
    if missing:
        fail(
            f"KUBECONFIG names a cluster of yours, which cannot see images built here. Push them "
            f"to a registry it reads (`python -m images build --push PREFIX`) and set "
            f"{', '.join(missing)}."
        )
    say(f"using the cluster of {os.environ['KUBECONFIG']}")
    control_plane, engine, model = (os.environ[name] for name in IMAGE_VARIABLES)
    return Cluster(
        environment={},
        control_plane_image=control_plane,
        engine_image=engine,
        model_image=model,
    )


def _local() -> Cluster:
    _output("devcluster", "up")
    environment = json.loads(_output("devcluster", "env", "--json"))
    # The names it prints, not `images names` afterwards: a file may change in between.
    names = json.loads(_output("images", "build", "--load"))
    return Cluster(
        environment=environment,
        control_plane_image=names["control-plane"],
        engine_image=names["engine"],
        model_image=names["demo-model"],
    )


def _output(*command: str) -> str:
    """What one of the repository's own tools answers; it prints its progress beside that."""
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    if result.returncode:
        fail(f"`python -m {' '.join(command)}` failed; its message is above")
    return result.stdout
