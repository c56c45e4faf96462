"""The files that a build sees: a copy, so that an edit meanwhile enters all of a build or none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from images.catalogue import Image, inputs
from images.paths import ROOT


@contextmanager
def snapshot(image: Image) -> Iterator[Path]:
    """A folder with the image's inputs, at the paths that they have in the repository."""
    with tempfile.TemporaryDirectory(prefix="warmgraph-image-") as folder:
        for path in inputs(image, ROOT):
            target = Path(folder, path.relative_to(ROOT))
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        yield Path(folder)
