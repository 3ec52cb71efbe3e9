"""Where roots are kept outside of the tables: a bucket whose objects cannot be changed or removed for a time."""

from __future__ import annotations

import threading
from typing import Any, Final, Protocol

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..errors import DifferentlyError
from .dynamo import Credentials

CONNECT_SECONDS_MAX: Final = 1.0
READ_SECONDS_MAX: Final = 5.0
SENDS_MAX: Final = 3
PREFIX: Final = "roots"
_THERE: Final = frozenset({"PreconditionFailed", "412"})


class ArchiveUnavailable(DifferentlyError):
    """The archive did not take it; it may be kept or not."""

    code = "provider_unavailable"


class Archive(Protocol):
    def keep(self, name: str, text: str) -> None:
        """Keep a text for good; one that is there under this name stays as it is. Raises `ArchiveUnavailable`."""
        ...


class NoArchive:
    """The log table alone keeps roots."""

    def keep(self, name: str, text: str) -> None:
        pass


class BucketArchive:
    """The bucket's own default retention locks what is put. Nothing is sent before the first call."""

    def __init__(
        self, bucket: str, *, region: str, host: str | None = None, credentials: Credentials | None = None
    ) -> None:
        self._bucket = bucket
        self._region = region
        self._host = host
        self._credentials = credentials
        self._client: Any = None
        self._lock = threading.Lock()

    def keep(self, name: str, text: str) -> None:
        try:
            # A bucket with Object Lock takes only what carries a checksum; botocore adds one.
            self._connected().put_object(
                Bucket=self._bucket, Key=f"{PREFIX}/{name}.txt", Body=text.encode(), IfNoneMatch="*",
                ContentType="text/plain; charset=utf-8",
            )  # fmt: skip
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _THERE:
                return
        except BotoCoreError as error:
            code = type(error).__name__
        else:
            return
        raise ArchiveUnavailable(f"The archive of roots: {code}.")

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                keys = self._credentials
                self._client = botocore.session.get_session().create_client(
                    "s3", region_name=self._region, endpoint_url=self._host,
                    aws_access_key_id=keys.key_id if keys is not None else None,
                    aws_secret_access_key=keys.secret if keys is not None else None,
                    config=Config(
                        connect_timeout=CONNECT_SECONDS_MAX, read_timeout=READ_SECONDS_MAX,
                        retries={"total_max_attempts": SENDS_MAX, "mode": "standard"},
                        s3={"addressing_style": "path"} if self._host else None,
                    ),
                )  # fmt: skip
            return self._client
