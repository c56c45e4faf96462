"""InferenceDeployments on the API server, written as a user or an autoscaler would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubernetes import client, config
from tests.apiserver.crd_manifests import Manifest
from warmgraph_api import labels


class Objects:
    """The InferenceDeployments of the namespace `default`."""

    def __init__(self, kubeconfig: Path) -> None:
        connect: Any = config.new_client_from_config
        self._api: Any = client.CustomObjectsApi(connect(config_file=str(kubeconfig)))
        self._place = {
            "group": labels.GROUP,
            "version": labels.VERSION,
            "plural": labels.PLURAL,
            "namespace": "default",
        }

    def create(self, manifest: Manifest, *, dry: bool = True) -> Manifest:
        """As `kubectl create` would; the answer is the object with its defaults."""
        created: Manifest = self._api.create_namespaced_custom_object(
            **self._place,
            body=manifest,
            field_validation="Strict",
            dry_run="All" if dry else None,
        )
        return created

    def refusal(self, manifest: Manifest) -> str:
        """What the API server says to a manifest that it must refuse."""
        with pytest.raises(client.ApiException) as raised:
            self.create(manifest)
        assert raised.value.status in (400, 422)
        message: str = json.loads(raised.value.body or "")["message"]
        return message

    def patch(self, name: str, change: Manifest) -> Manifest:
        patched: Manifest = self._api.patch_namespaced_custom_object(
            **self._place, name=name, body=change
        )
        return patched

    def patch_status(self, name: str, change: Manifest) -> Manifest:
        patched: Manifest = self._api.patch_namespaced_custom_object_status(
            **self._place, name=name, body=change
        )
        return patched

    def scale_of(self, name: str) -> Manifest:
        scale: Manifest = self._api.get_namespaced_custom_object_scale(**self._place, name=name)
        return scale

    def delete(self, name: str) -> None:
        self._api.delete_namespaced_custom_object(**self._place, name=name)
