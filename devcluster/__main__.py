"""Lets `python3 -m devcluster` work from the repository root, with nothing installed.

From there Python finds this folder before the package inside it, so this file puts the folder on
the path and starts over with the package.
"""

import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.modules.pop("devcluster", None)
runpy.run_module("devcluster", run_name="__main__", alter_sys=True)
