"""The audit log: what happened, and whether it is what was sealed."""

# Made from _async: python scripts/sync_client.py

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from .._failure import StreamCut
from .._request import SILENCE_SECONDS, request
from ..models import AuditEvent, VerifyView
from .paging import items
from .transport import Transport

END = b'{"export":'
TAIL_BYTES_MAX = 65_536


class Audit:
    """A tenant's key sees its own organization's events; operators name one, or see all."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, org: str | None = None, newest_first: bool = False, actor: str | None = None,
        action: str | None = None, target: str | None = None, since: datetime | str | None = None,
        to: datetime | str | None = None, at_most: int | None = None,
    ) -> Iterator[AuditEvent]:  # fmt: skip
        """Each event once, whatever happens meanwhile. `action` is exact, or a beginning and `*`: `sandbox.*`."""
        query = {
            "orgId": org, "order": "desc" if newest_first else "asc", "actor": actor, "action": action,
            "target": target, "from": _text(since), "to": _text(to), "limit": min(100, at_most or 100),
        }  # fmt: skip
        return items(self._transport, "/v1/audit-events", AuditEvent, query, at_most)

    def verify(self, *, org: str | None = None, from_seq: int = 0) -> Iterator[VerifyView]:
        """The server's own look at the chain, a stretch at a time: the last one is not intact, or reaches `size`."""
        seq = from_seq
        while True:
            asked = request("GET", "/v1/audit-events/verify", query={"orgId": org, "fromSeq": seq})
            found = VerifyView.from_dict(self._transport.document(asked))
            yield found
            if not found.intact or found.to_seq >= found.size or found.to_seq <= seq:
                return
            seq = found.to_seq

    def export(self, *, org: str | None = None, from_seq: int = 0) -> Iterator[bytes]:
        """The log as lines of JSON, in pieces; a StreamCut unless the last line with size and root came."""
        asked = request(
            "GET", "/v1/audit-events/export", query={"orgId": org, "fromSeq": from_seq},
            silence_seconds=SILENCE_SECONDS,
        )  # fmt: skip
        tail = b""
        with self._transport.opened(asked) as answer:
            for chunk in answer.chunks:
                tail = (tail + chunk)[-TAIL_BYTES_MAX:]
                yield chunk
        *_, last, rest = [b"", *tail.split(b"\n")]
        if rest or not last.startswith(END):
            raise StreamCut("The export broke off before its last line; export it again.")


def _text(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment
