"""Answers that the activator gives itself, in the form of the OpenAI API's errors."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

import msgspec


class Outcome(StrEnum):
    """How a request ended; the `code` of an error, and a label of the metrics."""

    FORWARDED = "forwarded"
    QUEUE_FULL = "queue_full"
    BODY_TOO_LARGE = "body_too_large"
    ACTIVATION_TIMEOUT = "activation_timeout"
    DEPLOYMENT_FAILED = "deployment_failed"
    DEPLOYMENT_DELETED = "deployment_deleted"
    SHUTTING_DOWN = "shutting_down"
    POD_CONNECTION_LOST = "pod_connection_lost"
    CLIENT_GONE = "client_gone"


_STATUS = {
    Outcome.QUEUE_FULL: HTTPStatus.TOO_MANY_REQUESTS,
    Outcome.BODY_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Outcome.POD_CONNECTION_LOST: HTTPStatus.BAD_GATEWAY,
}

_TYPE = {
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "invalid_request_error",
}

_RETRY_AFTER_SECONDS = {
    # The queue empties at once when a pod becomes ready, which takes seconds.
    Outcome.QUEUE_FULL: 5,
    # The wake-up goes on; the next attempt is held again.
    Outcome.ACTIVATION_TIMEOUT: 5,
    # Somebody must act first.
    Outcome.DEPLOYMENT_FAILED: 30,
    # Another activator takes it.
    Outcome.SHUTTING_DOWN: 1,
}


class Refusal(Exception):  # noqa: N818 (an answer as much as an error)
    """A request that ends without a pod's answer."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.status = _STATUS.get(outcome, HTTPStatus.SERVICE_UNAVAILABLE)
        self.retry_after_seconds = _RETRY_AFTER_SECONDS.get(outcome)

    @property
    def body(self) -> bytes:
        """As in the OpenAI API: `{"error": {"message", "type", "param", "code"}}`."""
        error = {
            "message": str(self),
            "type": _TYPE.get(self.status, "server_error"),
            "param": None,
            "code": self.outcome,
        }
        return msgspec.json.encode({"error": error})

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self.retry_after_seconds is not None:
            headers["Retry-After"] = str(self.retry_after_seconds)
        return headers

    @property
    def event(self) -> bytes:
        """As a server-sent event, for a caller whose status line has gone out already."""
        return b"data: " + self.body + b"\n\n"
