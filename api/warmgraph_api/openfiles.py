"""How many files a process may have open: every connection is one.

Container runtimes often start processes with a soft limit of 1024, so that old programs stay
correct that use select(); the hard limit is what a process may have.
"""

from __future__ import annotations

import resource


def allow_many() -> None:
    """Raise this process's limit as far as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
