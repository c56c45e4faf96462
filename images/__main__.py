"""`python -m images`."""

import sys

from images.cli import main

sys.exit(main())
