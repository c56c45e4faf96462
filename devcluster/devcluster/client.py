"""The few calls to the Kubernetes API that this tool makes, over the standard library.

The official client is not there yet when this tool runs.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from devcluster.errors import DevclusterError

# Anyone may see in managedFields what this tool wrote.
FIELD_MANAGER = "warmgraph-devcluster"


class ApiError(DevclusterError):
    """The API server's refusal, or its silence: then `status` is 0."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status


@dataclass(frozen=True)
class Client:
    host: str
    port: int
    pki: Path
    certificate: str = "admin"
    timeout_seconds: float = 10.0

    def _connection(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        context.load_cert_chain(
            self.pki / f"{self.certificate}.crt", self.pki / f"{self.certificate}.key"
        )
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_seconds, context=context
        )

    def _call(self, method: str, path: str, body: Any = None, kind: str = "") -> str:
        connection = self._connection(self.timeout_seconds)
        try:
            headers = {"Content-Type": kind} if kind else {}
            connection.request(method, path, json.dumps(body) if body else None, headers)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(0, f"{self.host}:{self.port} does not answer: {error!r}") from error
        finally:
            connection.close()
        if response.status >= 400:
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError):
                message = text.strip()
            raise ApiError(response.status, message)
        return text

    def ready(self) -> str | None:
        """None when the API server is ready, else why it is not."""
        try:
            self._call("GET", "/readyz")
        except ApiError as error:
            return str(error).partition("\n")[0]
        return None

    def get(self, path: str) -> Any:
        return json.loads(self._call("GET", path))

    def find(self, path: str) -> Any | None:
        """Like `get`, None when there is no such object."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def apply(self, path: str, body: Any) -> None:
        """Server-side apply; taking over a field from an earlier version of us is right."""
        query = urlencode({"fieldManager": FIELD_MANAGER, "force": "true"})
        self._call("PATCH", f"{path}?{query}", body, "application/apply-patch+yaml")

    def merge(self, path: str, body: Any) -> None:
        query = urlencode({"fieldManager": FIELD_MANAGER})
        self._call("PATCH", f"{path}?{query}", body, "application/merge-patch+json")

    def delete(self, path: str) -> None:
        """Deletes an object; one that is gone already is fine."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def changes(self, path: str, *, seconds: int) -> Iterator[None]:
        """Yields at each change of a collection, for at most `seconds`."""
        query = urlencode({"watch": "1", "timeoutSeconds": seconds})
        connection = self._connection(seconds + self.timeout_seconds)
        try:
            connection.request("GET", f"{path}?{query}")
            response = connection.getresponse()
            if response.status != 200:
                raise ApiError(response.status, response.read().decode())
            while response.readline():
                yield
        finally:
            connection.close()


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")
