"""Staging, in memory and in a bucket: what was announced comes back in pieces, and nothing else is taken."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable

import httpx
import pytest

from differently_core.store.dynamo import Credentials
from differently_core.store.s3 import S3Staging
from differently_core.store.staging import (
    CHUNK_BYTES,
    Address,
    MemoryStaging,
    NoStaging,
    NothingStaged,
    Staging,
    StagingUnavailable,
)
from tests.support.emulator import Emulator

_NUMBERS = itertools.count(1)
Send = Callable[[Address, bytes], bool]


@pytest.fixture(scope="module")
def bucket(emulator: Emulator) -> S3Staging:
    name = f"staging-{next(_NUMBERS)}"
    emulator.client("s3").create_bucket(Bucket=name)
    credentials = Credentials(emulator.key_id, emulator.secret)
    return S3Staging(name, region=emulator.region, host=emulator.url, credentials=credentials)


def put(address: Address, data: bytes) -> bool:
    return httpx.put(address.url, content=data, headers=dict(address.headers), trust_env=False).status_code == 200


@pytest.fixture(params=["memory", "s3"])
def staged(request: pytest.FixtureRequest) -> tuple[Staging, Send]:
    if request.param == "memory":
        memory = MemoryStaging()
        return memory, lambda address, data: memory.send({"url": address.url}, data)
    return request.getfixturevalue("bucket"), put


def announced(staging: Staging, data: bytes) -> tuple[str, Address]:
    name = f"uploads/org/sandbox/{next(_NUMBERS)}"
    return name, staging.address(name, len(data), hashlib.sha256(data).hexdigest(), 60)


def test_what_was_sent_comes_back_in_pieces_until_it_is_deleted(staged: tuple[Staging, Send]) -> None:
    staging, send = staged
    data = bytes(range(256)) * 8192 + b"the end"
    name, address = announced(staging, data)
    with pytest.raises(NothingStaged):
        staging.size(name)

    assert send(address, data)

    assert staging.size(name) == len(data)
    chunks = list(staging.chunks(name))
    assert b"".join(chunks) == data
    assert max(len(chunk) for chunk in chunks) <= CHUNK_BYTES
    for _ in range(2):
        staging.delete(name)
    with pytest.raises(NothingStaged):
        list(staging.chunks(name))


@pytest.mark.parametrize("other", [b"other bytes", b"more bytes than were announced", b"less"])
def test_an_address_takes_the_announced_bytes_alone(staged: tuple[Staging, Send], other: bytes) -> None:
    staging, send = staged
    name, address = announced(staging, b"these bytes")

    assert not send(address, other)

    with pytest.raises(NothingStaged):
        staging.size(name)


def test_a_changed_address_is_refused(bucket: S3Staging) -> None:
    _, address = announced(bucket, b"mine")
    elsewhere = address.url.replace("/org/", "/another/")
    assert elsewhere != address.url
    assert not put(Address(elsewhere, address.headers), b"mine")


def test_a_bucket_out_of_reach_is_told_without_its_request() -> None:
    staging = S3Staging("a-bucket", region="us-east-1", host="http://127.0.0.1:9", credentials=Credentials("id", "key"))
    with pytest.raises(StagingUnavailable) as refused:
        staging.size("uploads/secret-name")
    assert "secret-name" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_without_a_bucket_there_are_no_addresses() -> None:
    with pytest.raises(StagingUnavailable):
        NoStaging().address("a", 1, "00" * 32, 60)
