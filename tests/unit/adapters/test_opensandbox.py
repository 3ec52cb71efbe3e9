"""The parts of the OpenSandbox adapter that need no server: lines for a shell, events, pages, configuration."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from differently_adapters import registry
from differently_adapters.execd.scripts import Place, Told, command_line, place_told, understand
from differently_adapters.execd.stream import Event, events
from differently_adapters.providers.opensandbox.adapter import declared
from differently_adapters.providers.opensandbox.config import OpenSandboxConfig
from differently_adapters.providers.opensandbox.listing import PAGE_SIZE, read_all
from differently_adapters.providers.opensandbox.wire import PaginationRead, SandboxPage, SandboxRead, StatusRead
from differently_core.contract import NEEDS, TOGETHER, Operation, Supported
from differently_core.errors import ExecUnconfirmed, InvalidRequest, ProviderUnavailable
from differently_core.model.exec import ExecRequest
from differently_core.runtime.clock import VirtualClock

START = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = Place("/home", "/tmp")


# Lines.


def test_ten_thousand_random_byte_strings_pass_through_a_real_shell_as_they_are() -> None:
    chance = random.Random(20261129)
    words = [
        os.fsdecode(bytes(chance.randrange(1, 256) for _ in range(chance.randrange(0, 24)))) for _ in range(10_000)
    ]
    for start in range(0, len(words), 500):
        part = words[start : start + 500]
        request = ExecRequest.model_construct(args=["printf", r"%s\0", *part])
        line = command_line(request, PLACE, "run_x", exact=False, follow=False)
        told = subprocess.run(["/bin/sh", "-c", os.fsencode(line.text)], capture_output=True, check=True).stdout
        assert [os.fsdecode(word) for word in told.split(b"\0")[:-1]] == part


@pytest.mark.parametrize("words", [["TAG"], ["DIR TOOLS"], ["INLINE", "CHUNK"], ["run_x exit 0 0 0"]])
def test_words_that_look_like_ours_stay_the_callers(words: list[str]) -> None:
    request = ExecRequest(args=["echo", *words])
    text = command_line(request, PLACE, "run_x", exact=True, follow=True).text
    assert f"( exec echo {' '.join(shlex.quote(word) for word in words)} )" in text


def test_a_place_is_told_or_not_believed() -> None:
    assert place_told("home /work dir\ntmp /var/tmp\n") == Place("/work dir", "/var/tmp")
    assert place_told("home /work\ntmp relative\n") == Place("/work", "/tmp")
    assert place_told("some banner\n") is None


def test_only_lines_with_the_tag_are_ours() -> None:
    assert understand("run_y exit 0 1 2", "run_x") is None
    assert understand("", "run_x") is None
    assert understand("run_x exit 3 1 2", "run_x") == Told(3, {"stdout": 1, "stderr": 2})
    assert understand("run_x stdout aGVs bG8=", "run_x") == ("stdout", b"hello")
    for text, error in [("cwd", InvalidRequest), ("unusable", ProviderUnavailable), ("stdout !", ExecUnconfirmed),
                        ("new word", ExecUnconfirmed)]:  # fmt: skip
        with pytest.raises(error):
            understand(f"run_x {text}", "run_x")


# Events.


def test_events_come_whole_however_the_bytes_are_cut() -> None:
    sent = [
        {"type": "init", "text": "id"}, {"type": "stdout", "text": "é🙂" * 50}, {"type": "ping", "text": "pong"},
        {"type": "error", "error": {"ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"]}},
    ]  # fmt: skip
    bare = b"".join(json.dumps(event, ensure_ascii=False).encode() + b"\n\n" for event in sent)
    framed = b"".join(b"event: x\ndata: " + json.dumps(event).encode() + b"\r\n\r\n" for event in sent)
    for raw in (bare, framed):
        for size in (1, 2, 7, len(raw)):
            told = list(events(iter([raw[at : at + size] for at in range(0, len(raw), size)])))
            assert [event.kind for event in told] == ["init", "stdout", "ping", "error"]
            assert told[1].text == "é🙂" * 50
            assert told[3] == Event("error", "", "3", "exit status 3")


def test_a_line_that_was_cut_is_no_event() -> None:
    assert list(events(iter([b'{"type":"init","text":"id"}\n\n{"type":"execution_comp']))) == [Event("init", "id")]
    with pytest.raises(ExecUnconfirmed):
        list(events(iter([b"{broken\n"])))


# Pages.


def item(number: int) -> SandboxRead:
    return SandboxRead(
        id=f"sb-{number}", status=StatusRead(state="Running"), created_at=START + timedelta(seconds=number)
    )


class LiveList:
    """Newest first, over data that `change` may alter before each page is cut."""

    def __init__(self, count: int, change: Callable[[LiveList], None] = lambda _: None) -> None:
        self.numbers = list(range(count))
        self.next = count
        self.reads = 0
        self._change = change

    def page(self, number: int) -> SandboxPage:
        self._change(self)
        self.reads += 1
        newest = sorted(self.numbers, reverse=True)
        cut = newest[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
        more = number * PAGE_SIZE < len(newest)
        return SandboxPage(
            items=[item(one) for one in cut], pagination=PaginationRead(total_items=len(newest), has_next_page=more)
        )


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 400, 1_001])
def test_a_quiet_list_is_read_once(count: int) -> None:
    live = LiveList(count)
    assert len(read_all(live.page)) == count
    assert live.reads == max(1, -(-count // PAGE_SIZE))


@pytest.mark.parametrize("seed", range(60))
def test_what_is_there_all_the_time_is_never_missing(seed: int) -> None:
    chance = random.Random(seed)

    def change(live: LiveList) -> None:
        for _ in range(chance.choice([0, 0, 1, 2])):
            if chance.random() < 0.5 and live.numbers:
                live.numbers.remove(chance.choice(live.numbers))
            else:
                live.numbers.append(live.next)
                live.next += 1

    live = LiveList(700, change)
    try:
        told = {one.id for one in read_all(live.page)}
    except ProviderUnavailable:
        return  # no whole reading, and it says so
    assert {f"sb-{number}" for number in live.numbers if number < 700} <= told


@pytest.mark.parametrize(
    "spoil",
    [
        lambda page: page.model_copy(update={"items": page.items[1:]}),
        lambda page: page.model_copy(update={"items": []}),
        lambda page: page.model_copy(update={"pagination": PaginationRead(total_items=500, has_next_page=True)}),
    ],
    ids=["an item lost", "a page lost", "a cursor repeated for ever"],
)
def test_pages_that_do_not_add_up_are_an_error(spoil: Callable[[SandboxPage], SandboxPage]) -> None:
    live = LiveList(500)
    with pytest.raises(ProviderUnavailable):
        read_all(lambda number: spoil(live.page(min(number, 2))))


# Configuration.


def config(**changes: Any) -> OpenSandboxConfig:
    return OpenSandboxConfig.model_validate({"apiUrl": "https://sandbox.example.test", "runtime": "docker", **changes})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"apiUrl": "http://sandbox.example.test"}, "allowHttp"),
        ({"apiUrl": "https://key@sandbox.example.test"}, "user name or password"),
        ({"apiUrl": "ftp://sandbox.example.test"}, "https://"),
        ({"ports": "signed"}, "kubernetes runtime"),
        ({"poolRef": "p"}, "kubernetes runtime"),
        ({"poolRef": "p", "templateId": "t", "runtime": "kubernetes"}, "not both"),
        ({"features": ["teleport"]}, "unknown features"),
        ({"runtime": "firecracker"}, "runtime"),
        ({"egress": "allowlist"}, "egressAllow"),
        ({"egress": "none", "egressAllow": ["a.test"]}, "egressAllow"),
        ({"egress": "none", "poolRef": "p", "runtime": "kubernetes"}, "egress rules"),
        ({"egress": "allowlist", "egressAllow": ["a b"]}, "egressAllow"),
        ({"egress": "none", "egressProbe": "1.1.1.1:443; true"}, "egressProbe"),
        ({"apiKey": "canary"}, "apiKey"),
        ({"execdScheme": "http"}, "allowHttp"),
        ({"ports": "signed", "portScheme": "http", "runtime": "kubernetes"}, "allowHttp"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_when_it_is_written(changes: dict[str, Any], field: str) -> None:
    told = {"apiUrl": "https://sandbox.example.test", "runtime": "docker", **changes}
    with pytest.raises(InvalidRequest, match=field) as refused:
        registry.build("opensandbox", told, pool="p", installation="inst_a", clock=VirtualClock())
    assert "canary" not in str(refused.value)


def test_an_address_may_name_the_version_or_not() -> None:
    assert config(apiUrl="https://a.test/osb/v1/").api_url == config(apiUrl="https://a.test/osb").api_url


@pytest.mark.parametrize("runtime", ["docker", "kubernetes"])
def test_a_pools_own_declaration_holds_together(runtime: str) -> None:
    told = declared(config(runtime=runtime))
    offered = {operation for operation, support in told.items() if isinstance(support, Supported)}
    assert set(told) == set(Operation)
    assert all(group <= offered or not group & offered for group in TOGETHER)
    assert all(operation not in offered or needed in offered for operation, needed in NEEDS.items())
