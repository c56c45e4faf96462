"""Kubeconfig files. Written as JSON, which is YAML too, and needs no library to write."""

from __future__ import annotations

import base64
import json
from pathlib import Path


def render(*, cluster: str, user: str, server: str, pki: Path, certificate: str) -> str:
    """One cluster, one user, everything inside: the file can be copied anywhere on the machine."""

    def embedded(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": embedded("ca.crt"),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": embedded(f"{certificate}.crt"),
                        "client-key-data": embedded(f"{certificate}.key"),
                    },
                }
            ],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        },
        indent=1,
    )
