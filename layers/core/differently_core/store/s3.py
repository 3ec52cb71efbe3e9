"""S3 buckets: one where uploads are staged, and one that keeps roots of the audit log.

No error of botocore leaves this module: its texts may quote a request.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .archive import ArchiveUnavailable
from .dynamo import Credentials
from .staging import CHUNK_BYTES, Address, NothingStaged, StagingUnavailable

CONNECT_SECONDS_MAX: Final = 1.0
READ_SECONDS_MAX: Final = 10.0
SENDS_MAX: Final = 3
ROOTS: Final = "roots"
_THERE: Final = frozenset({"PreconditionFailed", "412"})
_GONE: Final = frozenset({"404", "NoSuchKey", "NotFound"})
T = TypeVar("T")


class _Bucket:
    """Nothing is sent, and no file of botocore's is read, before the first call."""

    def __init__(
        self, bucket: str, *, region: str, host: str | None = None, credentials: Credentials | None = None
    ) -> None:
        self._bucket = bucket
        self._region = region
        self._host = host
        self._credentials = credentials
        self._client: Any = None
        self._lock = threading.Lock()

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                keys = self._credentials
                self._client = botocore.session.get_session().create_client(
                    "s3", region_name=self._region, endpoint_url=self._host,
                    aws_access_key_id=keys.key_id if keys is not None else None,
                    aws_secret_access_key=keys.secret if keys is not None else None,
                    config=Config(
                        signature_version="s3v4", connect_timeout=CONNECT_SECONDS_MAX, read_timeout=READ_SECONDS_MAX,
                        retries={"total_max_attempts": SENDS_MAX, "mode": "standard"},
                        # An emulator on this machine has one host name; AWS is asked by the bucket's own.
                        s3={"addressing_style": "path" if self._host is not None else "virtual"},
                    ),
                )  # fmt: skip
            return self._client


class S3Staging(_Bucket):
    """An address is a presigned PUT: S3 itself refuses another length or another hash."""

    def address(self, name: str, size: int, sha256: str, seconds: int) -> Address:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        asked = {"Bucket": self._bucket, "Key": name, "ContentLength": size, "ChecksumSHA256": checksum}
        url = _told(lambda: self._connected().generate_presigned_url("put_object", Params=asked, ExpiresIn=seconds))
        # The length is signed too, and every client sends it by itself: a body of another one is refused.
        return Address(str(url), {"x-amz-checksum-sha256": checksum})

    def size(self, name: str) -> int:
        answer = _told(lambda: self._connected().head_object(Bucket=self._bucket, Key=name))
        return int(answer["ContentLength"])

    def chunks(self, name: str) -> Iterator[bytes]:
        body = _told(lambda: self._connected().get_object(Bucket=self._bucket, Key=name))["Body"]
        try:
            # Fewer bytes than were told end in an error, not in the end of the file.
            while chunk := _told(lambda: body.read(CHUNK_BYTES)):
                yield chunk
        finally:
            body.close()

    def delete(self, name: str) -> None:
        _told(lambda: self._connected().delete_object(Bucket=self._bucket, Key=name))


class BucketArchive(_Bucket):
    """The bucket's own default retention locks what is put."""

    def keep(self, name: str, text: str) -> None:
        try:
            # A bucket with Object Lock takes only what carries a checksum; botocore adds one.
            self._connected().put_object(
                Bucket=self._bucket, Key=f"{ROOTS}/{name}.txt", Body=text.encode(), IfNoneMatch="*",
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


def _told(call: Callable[[], T]) -> T:
    try:
        return call()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
    except BotoCoreError as error:
        code = type(error).__name__
    # Raised out here, so that the text of botocore's error is in no chain of causes.
    if code in _GONE:
        raise NothingStaged("Nothing was sent to this upload's address yet; PUT the file there first.")
    raise StagingUnavailable(f"The staging bucket: {code}; repeat the call in a second.")
