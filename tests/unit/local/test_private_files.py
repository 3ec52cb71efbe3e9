"""Files appear whole and private; a lock lives exactly as long as its last holder."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from differently_local import private_files
from differently_local.private_files import Lock


def test_a_file_is_private_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also under a mask that would let everybody read, and before it has its name."""
    before = os.umask(0)
    modes: list[int] = []
    fsync = os.fsync

    def look(handle: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", look)
    try:
        private_files.write(tmp_path / "secret", "x")
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    private_files.write(path, "old")

    def fail(handle: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        private_files.write(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / f".file.{os.getpid()}").symlink_to(target)
    private_files.write(tmp_path / "file", "x")
    assert not target.exists()
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"a": '])
def test_a_damaged_document_reads_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert private_files.read_json(tmp_path / "x.json") == {}
    assert private_files.read_json(tmp_path / "missing.json") == {}


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    first.close()
    assert second.take()
    second.close()


def test_a_child_that_inherits_the_lock_holds_it_until_it_dies(tmp_path: Path) -> None:
    lock, other = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert lock.take()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=(lock.fileno(),)
    )
    lock.close()
    assert not other.take()
    child.kill()
    child.communicate()
    assert other.take()
    other.close()
