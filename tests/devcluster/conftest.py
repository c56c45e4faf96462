"""Makes the tool importable: it is run from its folder, never installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "devcluster"))
