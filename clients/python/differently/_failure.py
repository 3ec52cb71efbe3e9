"""What can go wrong, in one tree. Codes of the API have a class each, below `ApiError`, in `differently.errors`.

    DifferentlyError
    ├── ConfigurationError   no address, no key, or a pair that must not go together
    ├── ConnectionFailed     no answer; `sent` says whether the request may have arrived all the same
    ├── UnexpectedAnswer     something answered that is not this API
    ├── UploadFailed         a large file did not reach the place that the server named for it
    ├── StreamCut            a stream broke off before its end was told: the command may still run
    ├── WaitTimeout          not in the wanted state within the time that the caller gave
    ├── SandboxEnded         it failed or was deleted while it was waited for
    ├── SnapshotFailed       it could not be taken
    ├── CommandFailed        `run(..., check=True)` and the exit code was not 0
    └── ApiError             the API refused: code, message, details, request id

No message, no field and no representation holds a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._advice import ADVICE


class DifferentlyError(Exception):
    """Base of everything that this package raises on purpose."""

    @property
    def advice(self) -> str | None:
        """What to do next, where that can be said."""
        return None


class ConfigurationError(DifferentlyError):
    """Told before anything is sent."""


class ConnectionFailed(DifferentlyError):
    """No whole answer came. `sent` is False when the request certainly did not arrive."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent

    @property
    def advice(self) -> str | None:
        if self.sent:
            return "It may have been carried out all the same: look before you repeat it."
        return "Check that the address is right and that the server runs: `curl ADDRESS/healthz`."


class UnexpectedAnswer(DifferentlyError):
    """An answer that this API does not give, such as a redirect or a page of a proxy."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    @property
    def advice(self) -> str | None:
        return "Check the address: something else seems to answer there."


class UploadFailed(DifferentlyError):
    """A large file did not reach the place that the server named for it. No text holds that address."""

    def __init__(self, message: str, *, repeats: bool) -> None:
        super().__init__(message)
        self.repeats = repeats
        """Whether sending it again may help."""

    @property
    def advice(self) -> str | None:
        return "Nothing was written in the sandbox: upload it again. It goes to a host of its own, beside the API."


class StreamCut(DifferentlyError):
    """The connection of a stream ended before the command's end was told; the command may still run."""

    @property
    def advice(self) -> str | None:
        return (
            "The command was not repeated and may still run. For long work use a job, whose output can be read again."
        )


class WaitTimeout(DifferentlyError):
    """`seen` is the last thing that was seen."""

    def __init__(self, message: str, seen: Any) -> None:
        super().__init__(message)
        self.seen = seen


class SandboxEnded(DifferentlyError):
    """`info` is the sandbox as it ended, with its `status_reason`."""

    def __init__(self, message: str, info: Any) -> None:
        super().__init__(message)
        self.info = info


class SnapshotFailed(DifferentlyError):
    """`info` is the snapshot, with its `status_reason`."""

    def __init__(self, message: str, info: Any) -> None:
        super().__init__(message)
        self.info = info


class CommandFailed(DifferentlyError):
    """`result` is what the command gave."""

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


class ApiError(DifferentlyError):
    """The API refused. A code that this version does not know is an `ApiError` itself, with that code."""

    code: str = ""
    status: int = 0

    def __init__(
        self, message: str, *, details: Mapping[str, Any] | None = None, request_id: str | None = None,
        retry_after_seconds: float | None = None, code: str | None = None, status: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds
        if code is not None:
            self.code = code
        if status is not None:
            self.status = status

    def __str__(self) -> str:
        told = f"{self.message} ({self.code}"
        return f"{told}, request {self.request_id})" if self.request_id else f"{told})"

    @property
    def advice(self) -> str | None:
        return ADVICE.get(self.code)
