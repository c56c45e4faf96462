"""The generated CRD, as far as it can be judged without an API server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from warmgraph_api import crd, labels
from warmgraph_api.resource import Model, Spec
from warmgraph_api.structural import Schema, UnsupportedTypeError, structural_schema

ROOT = Path(__file__).parents[2]
TYPES = {"string", "integer", "boolean", "object", "array"}


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema inside, with its path."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key], f"{path}[]")


ALL = list(walk(crd.object_schema()))
SPEC = dict(ALL)[".spec"]


def test_the_generated_files_are_up_to_date() -> None:
    assert crd.drift(ROOT) == ""


def test_drift_is_shown_and_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crd.main(["--root", str(tmp_path)]) == 0
    assert crd.main(["--root", str(tmp_path), "--check"]) == 0
    path = tmp_path / crd.CRD_PATH
    path.write_text(path.read_text().replace("maxReplicas", "mostReplicas"))
    capsys.readouterr()

    assert crd.main(["--root", str(tmp_path), "--check"]) == 1
    shown = capsys.readouterr()
    assert "-                    mostReplicas:" in shown.out
    assert "+                    maxReplicas:" in shown.out
    assert "python -m warmgraph_api.crd" in shown.err


def test_a_missing_file_is_drift(tmp_path: Path) -> None:
    crd.main(["--root", str(tmp_path)])
    shutil.rmtree(tmp_path / "docs")
    assert crd.main(["--root", str(tmp_path), "--check"]) == 1


def test_the_generator_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "warmgraph_api.crd", "--root", str(tmp_path)]
    subprocess.run(command, check=True)
    assert (tmp_path / crd.CRD_PATH).read_text() == (ROOT / crd.CRD_PATH).read_text()


def test_every_value_has_one_type() -> None:
    for path, schema in ALL:
        has_type = schema.get("type") in TYPES
        assert has_type != ("x-kubernetes-int-or-string" in schema), path
        assert not {"$ref", "$defs", "anyOf", "oneOf", "title"} & schema.keys(), path


def test_every_field_is_described() -> None:
    undescribed = {
        path
        for path, schema in ALL
        if path.startswith((".spec", ".status"))
        and not path.endswith("[]")
        and not path.startswith(".spec.template.env[]")
        and "[]." not in path
        and "description" not in schema
    }
    assert undescribed == set()


def test_everything_that_rules_look_at_has_a_bound() -> None:
    """The API server refuses a CRD whose rules could cost too much."""
    for path, schema in walk(SPEC, ".spec"):
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path
        if schema.get("type") == "string" and "enum" not in schema:
            assert "maxLength" in schema, path


def test_a_rule_speaks_to_the_user() -> None:
    for path, schema in ALL:
        for rule in schema.get("x-kubernetes-validations", []):
            assert rule["message"], path
            assert "\n" not in rule["message"], path


def test_defaults_of_the_crd_are_those_of_the_types() -> None:
    filled = {
        name: field["default"] for name, field in SPEC["properties"].items() if name != "model"
    }
    written = msgspec.to_builtins(Spec(model=Model(uri="pvc://a")))
    del written["model"]
    assert filled == written


def test_each_default_satisfies_its_own_schema() -> None:
    for path, schema in ALL:
        if "default" in schema:
            try:
                jsonschema.validate(schema["default"], schema)
            except jsonschema.ValidationError as error:
                raise AssertionError(f"{path}: {error.message}") from error


def test_status_has_no_defaults() -> None:
    """They would make the API server write what the operator did not say."""
    for path, schema in ALL:
        if path.startswith(".status"):
            assert "default" not in schema, path


def test_lists_with_keys_require_them() -> None:
    keyed = {path: schema for path, schema in ALL if "x-kubernetes-list-map-keys" in schema}
    assert ".status.conditions" in keyed
    for path, schema in keyed.items():
        assert set(schema["x-kubernetes-list-map-keys"]) <= set(schema["items"]["required"]), path


def test_the_names_are_those_that_programs_use() -> None:
    manifest = crd.manifest()
    assert manifest["metadata"]["name"] == "inferencedeployments.warmgraph.dev"
    assert manifest["spec"]["names"]["shortNames"] == [labels.SHORT_NAME]
    (version,) = manifest["spec"]["versions"]
    assert f"{manifest['spec']['group']}/{version['name']}" == labels.API_VERSION
    known = {path for path, _ in ALL}
    assert set(version["subresources"]["scale"].values()) <= known


def test_columns_show_fields_that_exist() -> None:
    known = {path for path, _ in ALL} | {".metadata.creationTimestamp"}
    for name, _, path, _ in crd.COLUMNS:
        field = path.replace('conditions[?(@.type=="Ready")]', "conditions[]")
        assert field.replace('conditions[?(@.type=="Serving")]', "conditions[]") in known, name


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: int


class Owner(msgspec.Struct):
    pet: Cat | Dog


class Anything(msgspec.Struct):
    value: Any


@pytest.mark.parametrize(("kind", "field"), [(Owner, "Owner.pet"), (Anything, "Anything.value")])
def test_a_type_that_a_crd_cannot_express_is_named(kind: type[msgspec.Struct], field: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=field):
        structural_schema(kind)
