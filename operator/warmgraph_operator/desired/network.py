"""Service, and the activators' EndpointSlice beside the Service's own."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from warmgraph_api import labels, ports
from warmgraph_operator.desired.metadata import owned, slice_name
from warmgraph_operator.kinds import ENDPOINT_SLICE, SERVICE, Object
from warmgraph_operator.resource import InferenceDeployment


def service(infd: InferenceDeployment) -> Object:
    """The selector stays through everything: Kubernetes keeps the native endpoints right also
    while the operator is down."""
    return {
        **owned(infd, SERVICE, infd.name),
        "spec": {
            "type": "ClusterIP",
            "selector": {labels.DEPLOYMENT: infd.name},
            "ports": [
                {
                    "name": ports.PORT_NAME,
                    "protocol": "TCP",
                    "port": ports.SERVICE_PORT,
                    "targetPort": ports.PORT_NAME,
                }
            ],
        },
    }


def url(infd: InferenceDeployment) -> str:
    return f"http://{infd.name}.{infd.metadata.namespace}.svc"


def activator_slice(infd: InferenceDeployment, *, addresses: Sequence[str], port: int) -> Object:
    """addresses: of ready activator pods, all of one IP family, at least one."""
    extra = {
        labels.SERVICE_NAME: infd.name,
        labels.SLICE_MANAGED_BY: labels.ACTIVATOR_SLICE_MANAGER,
    }
    return {
        **owned(infd, ENDPOINT_SLICE, slice_name(infd), extra_labels=extra),
        "addressType": f"IPv{ipaddress.ip_address(addresses[0]).version}",
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": True}} for address in addresses
        ],
        "ports": [{"name": ports.PORT_NAME, "protocol": "TCP", "port": port}],
    }
