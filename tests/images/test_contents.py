"""What is in the images, and that it runs for anybody."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from demo.environment import has_own_cluster
from demo.kube import Cluster
from images.registry import LOCAL, MANIFESTS
from tests.images.conftest import Pods
from tests.images.sidecar_cost import __file__ as sidecar_cost

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

MEGABYTE = 1_000_000


def test_the_control_plane_is_small(cluster: Cluster, pods: Pods) -> None:
    """Everything that it adds to its base, as it lies on a node's disk."""
    script = """
import pathlib
folders = ("/opt/warmgraph", "/usr/local/share/warmgraph")
files = [f for folder in folders for f in pathlib.Path(folder).rglob("*")]
print(sum(f.lstat().st_blocks * 512 for f in files))
"""
    command = ["python3", "-c", script]
    ended = pods.run("size", cluster.control_plane_image, command=command)

    assert MEGABYTE < int(ended.output) <= 250 * MEGABYTE, ended.output


@pytest.mark.parametrize("image", ["control_plane_image", "engine_image"])
def test_code_is_a_small_layer_of_its_own(cluster: Cluster, image: str) -> None:
    """What a change of code moves: the last layer, compressed."""
    if has_own_cluster():
        pytest.skip("layers are read from the local cluster's registry")
    repository, _, tag = getattr(cluster, image).removeprefix(f"{LOCAL}/").partition(":")
    request = urllib.request.Request(
        f"http://{LOCAL}/v2/{repository}/manifests/{tag}", headers={"Accept": MANIFESTS}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        *_, code = json.load(answer)["layers"]

    assert code["size"] < MEGABYTE


def test_the_control_plane_has_no_torch_and_no_engine(cluster: Cluster, pods: Pods) -> None:
    script = (
        "import importlib.util as u; "
        "print([n for n in ('torch', 'numpy', 'warmgraph_engine', 'pip') if u.find_spec(n)])"
    )
    ended = pods.run("no-torch", cluster.control_plane_image, command=["python3", "-c", script])

    assert ended.output.strip() == "[]"


@pytest.mark.parametrize("process", ["operator", "activator", "sidecar"])
def test_a_control_plane_process_runs_for_any_user(
    cluster: Cluster, pods: Pods, process: str
) -> None:
    ended = pods.run(
        process, cluster.control_plane_image, command=[f"warmgraph-{process}", "--help"]
    )

    assert ended.succeeded, ended.output
    assert f"usage: warmgraph-{process}" in ended.output


def test_the_engine_runs_for_any_user_by_its_flags_alone(cluster: Cluster, pods: Pods) -> None:
    ended = pods.run("engine", cluster.engine_image, args=["--help"])

    assert ended.succeeded, ended.output
    assert "--model" in ended.output


def test_torch_runs_for_a_user_without_a_name(cluster: Cluster, pods: Pods) -> None:
    """Libraries ask for the user's name and home to find their caches."""
    script = (
        "import getpass, pathlib, torch; "
        "print(getpass.getuser(), pathlib.Path.home(), torch.ones(2).sum().item())"
    )
    ended = pods.run("torch", cluster.engine_image, command=["python", "-c", script])

    assert ended.output.strip() == "warmgraph /tmp 2.0"


@pytest.mark.parametrize("image", ["control_plane_image", "engine_image"])
def test_bytecode_is_in_the_image(cluster: Cluster, pods: Pods, image: str) -> None:
    """Of our code, of its libraries and of Python's own: a read-only pod cannot store it."""
    script = """
import importlib.util, pathlib, warmgraph_api, msgspec, asyncio
for module in (warmgraph_api, msgspec, asyncio):
    sources = list(pathlib.Path(module.__file__).parent.glob("*.py"))
    bare = [s.name for s in sources
            if not pathlib.Path(importlib.util.cache_from_source(str(s))).exists()]
    print(module.__name__, len(sources) > 0, bare)
"""
    name = f"bytecode-{image.partition('_')[0]}"
    ended = pods.run(name, getattr(cluster, image), command=["python", "-c", script])

    assert ended.output.splitlines() == [
        "warmgraph_api True []",
        "msgspec True []",
        "asyncio True []",
    ]


def test_a_sidecar_is_light(cluster: Cluster, pods: Pods) -> None:
    script = Path(sidecar_cost).read_text()
    command = ["python", "-c", script]
    ended = pods.run("sidecar-cost", cluster.control_plane_image, command=command)

    assert ended.succeeded, ended.output
    cost = json.loads(ended.output.splitlines()[-1])
    print(cost)
    assert cost["memory_megabytes"] < 60
    # Of the processor, not of the clock, which stands for whatever else the machine does.
    assert cost["processor_seconds"] < 1
