"""What is kept in the bucket stays as it was kept, on the bucket that the data stack's template describes."""

from __future__ import annotations

import pytest

from differently_core.store.archive import ArchiveUnavailable
from differently_core.store.dynamo import Credentials
from differently_core.store.s3 import BucketArchive
from tests.support.emulator import Emulator


@pytest.fixture
def bucket(emulator: Emulator) -> str:
    client = emulator.client("s3")
    client.create_bucket(Bucket="archive", ObjectLockEnabledForBucket=True)
    rule = {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 400}}
    client.put_object_lock_configuration(
        Bucket="archive", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    return "archive"


def made(emulator: Emulator, bucket: str) -> BucketArchive:
    credentials = Credentials(emulator.key_id, emulator.secret)
    return BucketArchive(bucket, region=emulator.region, host=emulator.url, credentials=credentials)


def test_what_is_kept_is_locked_and_a_second_text_changes_nothing(emulator: Emulator, bucket: str) -> None:
    archive = made(emulator, bucket)
    archive.keep("org_1/1", "the first\n")
    archive.keep("org_1/1", "another\n")
    client = emulator.client("s3")
    found = client.get_object(Bucket=bucket, Key="roots/org_1/1.txt")
    assert found["Body"].read() == b"the first\n"
    assert found["ObjectLockMode"] == "GOVERNANCE"
    versions = client.list_object_versions(Bucket=bucket)["Versions"]
    assert len(versions) == 1
    with pytest.raises(client.exceptions.ClientError, match="AccessDenied"):
        client.delete_object(Bucket=bucket, Key="roots/org_1/1.txt", VersionId=versions[0]["VersionId"])


def test_a_bucket_that_is_not_there_is_told_without_its_name(emulator: Emulator) -> None:
    with pytest.raises(ArchiveUnavailable, match="NoSuchBucket") as raised:
        made(emulator, "nowhere-at-all").keep("a", "b")
    assert "nowhere" not in str(raised.value)
