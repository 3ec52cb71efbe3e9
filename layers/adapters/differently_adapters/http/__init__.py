"""HTTP for adapters: one pooled client a pool, bounded answers, one table of failures, no credential in any of them.

Importing this loads nothing of httpx; the first call of a pool does.
"""

from __future__ import annotations

from .answers import JSON_BYTES_MAX, BadAnswer
from .client import Answer, Call, Deadlines, Explain, Http, SharedClient, Sign, Streamed, segment
from .endpoints import (
    PUBLIC,
    AddressRefused,
    Endpoint,
    EndpointRules,
    Place,
    Target,
    configured_endpoint,
    parse_endpoint,
    parse_target,
    permitted,
    place_of,
)
from .failures import STATUSES, Status, error_inside, retry_after
from .lines import LINE_BYTES_MAX, LineTooLong, lines, text
from .redaction import REDACTED, Secrets

__all__ = [
    "JSON_BYTES_MAX",
    "LINE_BYTES_MAX",
    "PUBLIC",
    "REDACTED",
    "STATUSES",
    "AddressRefused",
    "Answer",
    "BadAnswer",
    "Call",
    "Deadlines",
    "Endpoint",
    "EndpointRules",
    "Explain",
    "Http",
    "LineTooLong",
    "Place",
    "Secrets",
    "SharedClient",
    "Sign",
    "Status",
    "Streamed",
    "Target",
    "configured_endpoint",
    "error_inside",
    "lines",
    "parse_endpoint",
    "parse_target",
    "permitted",
    "place_of",
    "retry_after",
    "segment",
    "text",
]
