"""The commands that the builders get."""

from __future__ import annotations

import threading
import tomllib
from pathlib import Path

import pytest

from images import builder, cli, registry
from images.builder import build_arguments
from images.errors import ImageError
from images.turn import turn

CONTEXT = Path("/context")


def arguments(program: str, *, base: str = "", volumes: dict[Path, str] | None = None) -> list[str]:
    return build_arguments(
        program, CONTEXT, "images/x", name="localhost/x:1", base=base, volumes=volumes or {}
    )


@pytest.mark.parametrize("program", builder.PROGRAMS)
def test_a_build_names_its_file_its_image_and_its_context(program: str) -> None:
    words = arguments(program)

    assert words[0] == "build"
    assert "--file=/context/images/x" in words
    assert "--tag=localhost/x:1" in words
    assert words[-1] == "/context"


def test_without_a_base_the_containerfiles_own_is_used() -> None:
    assert not [word for word in arguments("docker") if "BASE" in word]
    assert "--build-arg=BASE=base:1" in arguments("docker", base="base:1")


def test_only_programs_that_can_mount_get_volumes() -> None:
    assert "--volume=/host:/run/build" in arguments(
        "buildah", volumes={Path("/host"): "/run/build"}
    )
    assert not builder.choose("docker").has_volumes
    assert builder.choose("podman").has_volumes


def test_buildah_keeps_its_layers_in_the_users_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("WARMGRAPH_CACHE", str(tmp_path))

    settings = Path(builder.choose("buildah").environment["CONTAINERS_STORAGE_CONF"])

    storage = tomllib.loads(settings.read_text())["storage"]
    assert storage["graphroot"] == str(tmp_path / "images" / "storage")


def test_without_any_builder_the_user_is_told_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr("images.builder.shutil.which", lambda _: None)

    with pytest.raises(ImageError, match="buildah, podman, docker"):
        builder.choose("auto")


def test_a_registry_that_does_not_answer_is_named(monkeypatch) -> None:
    monkeypatch.setattr(registry, "LOCAL", "127.0.0.1:1")

    with pytest.raises(ImageError, match=r"127\.0\.0\.1:1.*devcluster up"):
        registry.local_has("127.0.0.1:1/x:1")


def test_a_second_command_waits_for_the_first(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setenv("WARMGRAPH_CACHE", str(tmp_path))
    order = []

    def second() -> None:
        with turn():
            order.append("second")

    with turn():
        waiting = threading.Thread(target=second)
        waiting.start()
        while "waiting for it" not in capsys.readouterr().err:
            waiting.join(0.01)
        order.append("first")
    waiting.join()

    assert order == ["first", "second"]


def test_an_unknown_image_is_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["build", "kernel"])

    assert "control-plane" in capsys.readouterr().err
