"""A release is made of what is tagged, says what it is made of, and is the same bytes each time."""

from __future__ import annotations

import os
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from differently_infra.packaging import LOCK
from differently_infra.release import PINNED, Checkout, Unreleasable, archive, bill_of_materials

CLEAN = Checkout("1.2.3", "0" * 40, ("v1.2.3",), ())


def test_what_is_clean_and_tagged_is_a_release() -> None:
    CLEAN.check()


@pytest.mark.parametrize(
    ("checkout", "said"),
    [
        (Checkout("1.2.3", "0" * 40, ("v1.2.3",), (" M README.md",)), "README.md among them"),
        (Checkout("1.2.3", "0" * 40, (), ()), "no tag v1.2.3"),
        (Checkout("1.2.3", "0" * 40, ("v1.2.2",), ()), "no tag v1.2.3"),
    ],
)
def test_what_is_not_is_refused(checkout: Checkout, said: str) -> None:
    with pytest.raises(Unreleasable, match=said):
        checkout.check()


def test_a_checkout_is_read_from_git(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com"}
        committer = {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
        environment = {**os.environ, **identity, **committer, "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True, env=environment)

    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.9.0"\n')
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    git("tag", "v0.9.0")
    read = Checkout.read(tmp_path)
    read.check()
    assert (read.version, len(read.commit)) == ("0.9.0", 40)
    (tmp_path / "new.txt").touch()
    with pytest.raises(Unreleasable, match=r"new\.txt"):
        Checkout.read(tmp_path).check()


def test_no_git_is_said(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.9.0"\n')
    with pytest.raises(Unreleasable, match="git rev-parse"):
        Checkout.read(tmp_path)


def test_an_archive_is_the_same_bytes_whenever_it_is_made(tmp_path: Path) -> None:
    made = []
    for number, order in enumerate((("a.py", "deep/b.py"), ("deep/b.py", "a.py"))):
        source = tmp_path / str(number)
        (source / "deep").mkdir(parents=True)
        for name in order:
            (source / name).write_text(name)
        (source / "run").write_text("#!/bin/sh\n")
        (source / "run").chmod(0o755)
        os.utime(source / "a.py", (time.time(), 1_000_000_000 + number * 1_000_000))
        archive(source, tmp_path / f"{number}.zip")
        made.append((tmp_path / f"{number}.zip").read_bytes())
    assert made[0] == made[1]
    with zipfile.ZipFile(tmp_path / "0.zip") as zipped:
        assert zipped.namelist() == ["a.py", "deep/b.py", "run"]
        assert zipped.getinfo("run").external_attr >> 16 & 0o111
        assert not zipped.getinfo("a.py").external_attr >> 16 & 0o111


def test_the_bill_lists_every_pin_with_its_hashes() -> None:
    lock = LOCK.read_text(encoding="utf-8")
    components = bill_of_materials(CLEAN, lock)["components"]
    assert {entry["name"] for entry in components} == {name for name, _ in PINNED.findall(lock)}
    assert {"boto3", "httpx", "pydantic", "pynamodb"} <= {entry["name"] for entry in components}
    assert all(entry["hashes"] for entry in components)
    assert sum(len(entry["hashes"]) for entry in components) == lock.count("--hash=sha256:")
