"""A root as transparency logs publish it: the checkpoint of C2SP (https://c2sp.org/tlog-checkpoint).

Three lines say which log, how many leaves and the root hash. A line of ours follows that names the checkpoint before
it; tools that do not know it pass it over.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode

PREVIOUS = "previous"


def checkpoint(origin: str, size: int, root: str, previous: str) -> str:
    """`root` is the hash in base64, `previous` the digest of the checkpoint before, empty for the first."""
    lines = [origin, str(size), root, *([f"{PREVIOUS} {previous}"] if previous else [])]
    return "".join(f"{line}\n" for line in lines)


def digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
