#!/usr/bin/env python3
"""Verify an export of Differently's audit log against roots that were kept elsewhere.

    python3 verify_audit.py --root root.txt [--root older.txt ...] events.ndjson [more.ndjson ...]

Needs Python 3.9 or later and nothing else, and asks nobody anything. An export is what
`GET /v1/audit-events/export` answers: one event a line in its canonical form, in the order of their places from 0;
several files are read as one, in the order given. A root is a checkpoint of C2SP (https://c2sp.org/tlog-checkpoint):
a name, the number of events and the root hash, each on a line. Whoever holds one root that nobody could change knows
of every event before it whether it was changed, left out, moved or added since; what came after it is known with the
next root.

Ends with 0 when every root fits, with 1 when one does not, with 2 when it was not told enough.
"""

import argparse
import base64
import binascii
import hashlib
import json
import sys

TRAILER = b'{"export":'
MISSING = b'{"missing":'


class Wrong(Exception):
    """The log is not what its roots say, or it cannot be read. The text says what is wrong."""


class Tree:
    """The Merkle tree of RFC 6962, as the roots of its complete subtrees."""

    def __init__(self):
        self.size = 0
        self._subtrees = []

    def append(self, line):
        sha256 = hashlib.sha256
        node = sha256(b"\x00" + line).digest()
        size, subtrees = self.size, self._subtrees
        while size & 1:
            node = sha256(b"\x01" + subtrees.pop() + node).digest()
            size >>= 1
        subtrees.append(node)
        self.size += 1

    def root(self):
        if not self._subtrees:
            return hashlib.sha256(b"").digest()
        node = self._subtrees[-1]
        for left in reversed(self._subtrees[:-1]):
            node = hashlib.sha256(b"\x01" + left + node).digest()
        return node


class Root:
    """A checkpoint: what the tree over the first `size` events must come to."""

    def __init__(self, text, source):
        lines = text.split("\n")
        if len(lines) < 3 or not lines[1].isdigit():
            raise Wrong(f"{source}: not a checkpoint: it has a name, a size and a hash on lines of their own")
        self.source, self.origin, self.size = source, lines[0], int(lines[1])
        try:
            self.hash = base64.b64decode(lines[2].encode(), validate=True)
        except (ValueError, binascii.Error):
            raise Wrong(f"{source}: its third line is not base64") from None


def verify(lines, roots):
    """Read the export once; the tree over it. Raises `Wrong` at the first root that does not fit."""
    if len({root.origin for root in roots}) > 1:
        raise Wrong("the roots are of different logs: " + ", ".join(sorted({root.origin for root in roots})))
    ahead = sorted(roots, key=lambda root: root.size, reverse=True)
    tree, trailer = Tree(), None
    while ahead and ahead[-1].size == 0:
        _compare(tree, ahead.pop())
    for number, line in enumerate(lines, 1):
        line = line.rstrip(b"\r\n")
        if not line:
            continue
        if line.startswith(TRAILER):
            trailer = _trailer(line, tree, number)
            continue
        if line.startswith(MISSING):
            raise Wrong(f"line {number}: the event {tree.size} is missing from the log")
        trailer = None
        tree.append(line)
        while ahead and ahead[-1].size == tree.size:
            _compare(tree, ahead.pop())
    if ahead:
        raise Wrong(f"{ahead[-1].source} is of {ahead[-1].size} events, but the export has only {tree.size}")
    if trailer is None:
        raise Wrong(f"the export was cut: its last line, which begins with {TRAILER.decode()}, is missing")
    return tree


def _compare(tree, root):
    if tree.root() != root.hash:
        raise Wrong(
            f"{root.source} does not fit: the first {root.size} events of the export come to another root, so one of "
            "them was changed, left out, moved or added"
        )


def _trailer(line, tree, number):
    """What an export says of itself: no proof of anything, but it tells a whole one from one that was cut."""
    try:
        said = json.loads(line.decode())["export"]
        first, end, size, root = said["fromSeq"], said["toSeq"], said["size"], said["root"]
    except (ValueError, KeyError, TypeError):
        raise Wrong(f"line {number}: the end of the export cannot be read") from None
    if end != tree.size or not isinstance(first, int) or first > end:
        raise Wrong(f"line {number}: events are missing: this part should end with {end}, and {tree.size} are here")
    if size == tree.size and base64.b64encode(tree.root()).decode() != root:
        raise Wrong(f"line {number}: the events come to another root than the export itself says")
    return said


def canonical(event):
    """The canonical form of an event that was parsed: for events that did not come as exported lines."""

    def ordered(value):
        if not isinstance(value, dict):
            return value
        return {name: ordered(value[name]) for name in sorted(value, key=lambda name: name.encode("utf-16-be"))}

    return json.dumps(ordered(event), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def verify_inclusion(leaf, place, size, path, root):
    """Whether `path` proves that the leaf with this hash is at `place` in the tree (RFC 9162, 2.1.3.2)."""
    if not 0 <= place < size:
        return False
    node, index, last = leaf, place, size - 1
    for step in path:
        if last == 0:
            return False
        if index & 1 or index == last:
            node = hashlib.sha256(b"\x01" + step + node).digest()
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            node = hashlib.sha256(b"\x01" + node + step).digest()
        index, last = index >> 1, last >> 1
    return last == 0 and node == root


def verify_consistency(old, new, old_root, new_root, path):
    """Whether `path` proves that the tree of `new` leaves begins with that of `old` (RFC 9162, 2.1.4.2)."""
    if not 0 < old <= new:
        return False
    if old == new:
        return not path and old_root == new_root
    steps = list(path)
    if old & (old - 1) == 0:
        steps.insert(0, old_root)
    if not steps:
        return False
    index, last = old - 1, new - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    first = second = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if index & 1 or index == last:
            first = hashlib.sha256(b"\x01" + step + first).digest()
            second = hashlib.sha256(b"\x01" + step + second).digest()
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            second = hashlib.sha256(b"\x01" + second + step).digest()
        index, last = index >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


def _lines(paths):
    for path in paths:
        if path == "-":
            yield from sys.stdin.buffer
        else:
            with open(path, "rb") as file:
                yield from file


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Verify an export of Differently's audit log.")
    parser.add_argument("--root", action="append", default=[], metavar="FILE", help="a root that was kept; repeatable")
    parser.add_argument("events", nargs="+", metavar="EXPORT", help="exported events; - is the standard input")
    given = parser.parse_args(arguments)
    if not given.root:
        print("verify_audit: name at least one --root: an export alone can prove nothing", file=sys.stderr)
        return 2
    try:
        roots = []
        for path in given.root:
            with open(path, encoding="utf-8") as file:
                roots.append(Root(file.read(), path))
        tree = verify(_lines(given.events), roots)
    except (Wrong, OSError, UnicodeDecodeError) as error:
        print(f"verify_audit: {error}", file=sys.stderr)
        return 1
    covered = max(root.size for root in roots)
    print(f"ok: {len(roots)} roots fit; {covered} events are as they were sealed")
    if tree.size > covered:
        print(f"{tree.size - covered} later events are covered by no root yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
