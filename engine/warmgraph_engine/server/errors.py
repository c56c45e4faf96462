"""Errors as OpenAI's clients expect them: a status, and an `error` object with four fields."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

import msgspec

_log = logging.getLogger(__name__)

_AT = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")
_FIELD = re.compile(r"^Object (?:contains unknown|missing required) field `(?P<name>[^`]*)`")


class ApiError(Exception):
    """An answer other than success."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds

    def body(self) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)


def engine_failed(message: str) -> ApiError:
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        f"the engine failed while it ran this request: {message}",
        kind="server_error",
        code="engine_fault",
    )


def unavailable(message: str, *, code: str, retry_after_seconds: int) -> ApiError:
    return ApiError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        message,
        kind="server_error",
        code=code,
        retry_after_seconds=retry_after_seconds,
    )


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of any exception; an unexpected one goes to the log."""
    if isinstance(error, ApiError):
        return error
    _log.error("unexpected error", exc_info=error)
    return ApiError(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "an unexpected error in the server; its log has the details",
        kind="server_error",
        code="internal_error",
    )


def from_msgspec(error: msgspec.MsgspecError) -> ApiError:
    """A body that is not JSON, or not what the endpoint takes: names the field if there is one."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return bad_request(f"the body is not valid JSON: {text}", code="invalid_json")
    at = _AT.search(text)
    path = at["path"] if at else ""
    message = text[: at.start()] if at else text
    field = _FIELD.match(message)
    if field:
        path = f"{path}.{field['name']}" if path else field["name"]
    # null stands for "not given" everywhere; saying so in every message would only confuse.
    message = (message[:1].lower() + message[1:]).replace(" | null`", "`")
    where = f"{path}: " if path and not field else ""
    return bad_request(f"{where}{message}", param=path or None)
