"""The standalone verifier: whatever is done to an export, a root that was kept before tells.

reliability.md 5: 1,000 random tamperings (flip, drop, swap, truncate, replay, fork) are all detected.
"""

from __future__ import annotations

import ast
import base64
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from differently_core.audit.canonical import canonical
from differently_core.audit.tree import Frontier, leaf_hash
from tests.support.verifier import FILE, load
from tests.support.world import World
from tests.unit.core.test_sealing import an_event

verifier = load()
EVENTS = 60
CORE = World().core
LINES = [canonical(an_event(CORE, number, details={"n": number})) for number in range(EVENTS)]


def note(lines: list[bytes]) -> str:
    root = Frontier().extend(leaf_hash(line) for line in lines).root()
    return f"differently/inst_1/org_1\n{len(lines)}\n{base64.b64encode(root).decode()}\n"


def whole(lines: list[bytes]) -> list[bytes]:
    """An export, with the last line that an attacker can make as well as we do."""
    root = note(lines).split("\n")[2]
    said = f'{{"export":{{"org":"org_1","fromSeq":0,"toSeq":{len(lines)},"size":{len(lines)},"root":"{root}"}}}}'
    return [line + b"\n" for line in [*lines, said.encode()]]


def kept(size: int) -> object:
    return verifier.Root(note(LINES[:size]), f"root-{size}.txt")


def flip(lines: list[bytes], upto: int, chance: random.Random) -> list[bytes]:
    place = chance.randrange(upto)
    line = bytearray(lines[place])
    # Neither an end of line nor white space at the end is part of an event.
    position = chance.randrange(len(line))
    line[position] ^= chance.choice([1, 2, 4, 8, 16, 32, 64, 128])
    return [*lines[:place], bytes(line), *lines[place + 1 :]]


def drop(lines: list[bytes], upto: int, chance: random.Random) -> list[bytes]:
    place = chance.randrange(upto)
    return lines[:place] + lines[place + 1 :]


def swap(lines: list[bytes], upto: int, chance: random.Random) -> list[bytes]:
    one, two = chance.sample(range(upto), 2)
    swapped = list(lines)
    swapped[one], swapped[two] = swapped[two], swapped[one]
    return swapped


def truncate(lines: list[bytes], upto: int, chance: random.Random) -> list[bytes]:
    return lines[: chance.randrange(upto)]


def replay(lines: list[bytes], upto: int, chance: random.Random) -> list[bytes]:
    place = chance.randrange(upto)
    again = chance.choice(lines)
    return [*lines[:place], again, *lines[place:]]


def fork(lines: list[bytes], upto: int, chance: random.Random) -> list[bytes]:
    """Another history from some place on, as consistent in itself as the real one."""
    place = chance.randrange(upto)
    other = [canonical(an_event(CORE, 1000 + number)) for number in range(chance.randrange(1, EVENTS))]
    return lines[:place] + other


TAMPERINGS: list[Callable[[list[bytes], int, random.Random], list[bytes]]] = [
    flip, drop, swap, truncate, replay, fork,
]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_every_tampering_is_detected_by_one_earlier_root(
    tamper: Callable[[list[bytes], int, random.Random], list[bytes]],
) -> None:
    chance = random.Random(tamper.__name__)
    for _ in range(170):
        size = chance.randrange(2, EVENTS + 1)
        tampered = tamper(LINES, size, chance)
        if tampered[:size] == LINES[:size]:
            continue  # a replay of the very event that stands there changes what comes after it alone
        with pytest.raises(verifier.Wrong):
            verifier.verify(whole(tampered), [kept(size)])


@pytest.mark.parametrize("size", [0, 1, 2, 31, 32, 33, EVENTS])
def test_what_nobody_touched_is_in_order(size: int) -> None:
    tree = verifier.verify(whole(LINES), [kept(size), kept(EVENTS)])
    assert tree.size == EVENTS


def test_two_parts_are_read_as_one() -> None:
    said = b'{"export":{"org":"org_1","fromSeq":0,"toSeq":30,"size":60,"root":"x"}}\n'
    parts = [line + b"\n" for line in LINES[:30]] + [said] + whole(LINES)[30:]
    assert verifier.verify(parts, [kept(40)]).size == EVENTS


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (whole(LINES)[:-1], "was cut"),
        ([*whole(LINES)[:50], b'{"missing":{"seq":50}}\n', *whole(LINES)[51:]], "the event 50 is missing"),
        ([*whole(LINES[:-1])[:-1], whole(LINES)[-1]], "59 are here"),
    ],
)
def test_an_export_that_is_not_whole_is_told(lines: list[bytes], said: str) -> None:
    with pytest.raises(verifier.Wrong, match=said):
        verifier.verify(lines, [kept(20)])


def test_roots_of_different_logs_are_not_mixed() -> None:
    other = verifier.Root(note(LINES).replace("org_1", "org_2"), "other.txt")
    with pytest.raises(verifier.Wrong, match="different logs"):
        verifier.verify(whole(LINES), [kept(3), other])


@pytest.mark.parametrize("text", ["", "name\nten\nhash\n", "name\n1\nnot base64!\n", "name\n1"])
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(verifier.Wrong, match=r"root\.txt"):
        verifier.Root(text, "root.txt")


def test_the_canonical_form_is_made_again_without_us() -> None:
    import json

    event = an_event(CORE, 1, details={"é": "ü\n\x7f\u2028", "a": None, "\U0001f600": 2**60, "\ufb33": True})
    shuffled = dict(reversed(json.loads(canonical(event)).items()))
    assert verifier.canonical(shuffled) == canonical(event)


def test_the_command_answers_with_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export, root = tmp_path / "events.ndjson", tmp_path / "root.txt"
    export.write_bytes(b"".join(whole(LINES)))
    root.write_text(note(LINES[:50]))
    assert verifier.main(["--root", str(root), str(export)]) == 0
    assert "50 events are as they were sealed" in capsys.readouterr().out
    assert verifier.main([str(export)]) == 2
    export.write_bytes(b"".join(whole(LINES)).replace(b"key_1", b"key_2", 1))
    assert verifier.main(["--root", str(root), str(export)]) == 1
    assert "root.txt does not fit" in capsys.readouterr().err
    assert verifier.main(["--root", str(tmp_path / "none.txt"), str(export)]) == 1


def test_it_needs_the_standard_library_alone() -> None:
    tree = ast.parse(FILE.read_text())
    names = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert names <= set(sys.stdlib_module_names)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    compile(FILE.read_text(), str(FILE), "exec", dont_inherit=True)
    ast.parse(FILE.read_text(), feature_version=(3, 9))
