"""One activator port for each InferenceDeployment: the lowest free one, kept as long as it lives.

The port stands in each resource's status, so a restarted operator finds what it gave. In between
giving a port and seeing it in a list, the gift is remembered here.
"""

from __future__ import annotations

from collections.abc import Iterable

from warmgraph_api import ports
from warmgraph_operator.resource import InferenceDeployment, Key


def lowest_free(taken: Iterable[int]) -> int:
    """0 where all 5,000 are taken; the deployment then has no activator."""
    used = set(taken)
    candidates = range(ports.ACTIVATOR_FIRST_PORT, ports.ACTIVATOR_LAST_PORT + 1)
    return next((port for port in candidates if port not in used), 0)


class PortMap:
    def __init__(self) -> None:
        self._given: dict[Key, int] = {}
        """Until the status of the resource shows it, or the resource is gone."""

    def assign(self, infd: InferenceDeployment, others: Iterable[InferenceDeployment]) -> int:
        """The port of this resource. others: all resources, this one among them or not.

        Never suspends: two resources that ask at once get different ports. Of two with the same
        port (made by two operators), the one whose name comes first keeps it.
        """
        shown = {other.key: other.status.activator.port for other in others}
        shown.pop(infd.key, None)
        given = {key: port for key, port in self._given.items() if not shown.get(key)}
        own = infd.status.activator.port or given.get(infd.key, 0)
        clash = any(port == own and key < infd.key for key, port in shown.items())
        if not own or clash:
            given.pop(infd.key, None)
            own = lowest_free({*shown.values(), *given.values()})
        self._given = {**given, infd.key: own}
        return own

    def forget(self, key: Key) -> None:
        """The resource is gone: its port is free."""
        self._given.pop(key, None)
