"""Files by shell lines alone, as on a backend that can only run commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from differently_adapters.jobs import IN_TMPDIR, ShellJobs
from differently_adapters.shell_files import PART_BYTES, Carriers, ShellFiles
from differently_adapters.supervised import Supervised
from differently_core.contract import Owner, Target
from differently_core.errors import DifferentlyError, InvalidRequest, NotFound, ProviderUnavailable
from differently_core.model.exec import ExecRequest, JobState
from differently_core.runtime.clock import SystemClock
from tests.support.local_shell import SHELLS, LocalShell

ODD = 'it\'s "odd" $HOME `id` * ; & é 🙂\n\t-'


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> LocalShell:
    return LocalShell(tmp_path, SHELLS[request.param])


def over(shell: LocalShell, carriers: Carriers | None = None) -> ShellFiles:
    return ShellFiles(Supervised(shell, SystemClock()).exec, SystemClock(), carriers)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1])
def test_parts_make_the_whole(shell: LocalShell, size: int) -> None:
    files, data = over(shell), bytes(number % 251 for number in range(size))
    assert files.write(f"a/{ODD}", [data[:100], data[100:]]).size == size
    content = files.read(f"a/{ODD}")
    assert (content.size, b"".join(content.chunks)) == (size, data)
    assert list(shell.tmp.iterdir()) == []


def test_an_absolute_path_is_taken_as_it_is(shell: LocalShell) -> None:
    path = str(shell.tmp / "elsewhere" / "file")
    over(shell).write(path, [b"x"])
    assert b"".join(over(shell).read(path).chunks) == b"x"
    assert over(shell).list(str(shell.tmp / "elsewhere"))[0].path == path


def test_a_replaced_file_keeps_its_mode(shell: LocalShell) -> None:
    (shell.home / "run").write_text("old")
    (shell.home / "run").chmod(0o755)
    assert over(shell).write("run", [b"new"]).mode == "0755"


def test_carriers_get_absolute_paths_and_what_they_lose_is_noticed(shell: LocalShell) -> None:
    uploaded: list[str] = []

    def upload(path: str, data: Iterable[bytes]) -> None:
        uploaded.append(path)
        Path(path).write_bytes(b"".join(data)[:2])

    def download(path: str) -> Iterator[bytes]:
        yield Path(path).read_bytes()[:2]

    files = over(shell, Carriers(upload, download))
    (shell.home / "file").write_text("old")
    with pytest.raises(ProviderUnavailable, match="cut off"):
        files.write("file", [b"longer"])
    assert uploaded[0].startswith(str(shell.tmp))
    assert (shell.home / "file").read_text() == "old"
    with pytest.raises(ProviderUnavailable, match="cut"):
        b"".join(files.read("file").chunks)


def test_what_cannot_be_is_told_apart(shell: LocalShell) -> None:
    files = over(shell)
    (shell.home / "dir").mkdir()
    (shell.home / "dangling").symlink_to("nowhere")
    (shell.home / "pipe").symlink_to("/dev/zero")
    errors = {
        "missing": (files.read, NotFound), "dir": (files.read, InvalidRequest), "dangling": (files.read, NotFound),
        "pipe": (files.read, InvalidRequest), ".": (files.delete, InvalidRequest), "a\0b": (files.stat, InvalidRequest),
    }  # fmt: skip
    for path, (call, error) in errors.items():
        with pytest.raises(error):
            call(path)
    assert {entry.name for entry in files.list("")} == {"dir", "dangling", "pipe"}
    assert issubclass(NotFound, DifferentlyError)


def test_jobs_are_kept_where_the_sandbox_keeps_temporary_files_also_those_sent_in_parts(shell: LocalShell) -> None:
    jobs = ShellJobs(lambda _, request, most: Supervised(shell, SystemClock()).exec(request, most), lambda _: IN_TMPDIR)
    target = Target(Owner("inst_a", "sbx_a"))
    jobs.start(target, "long", ExecRequest(command="cat | wc -c", stdin="x" * 900_000))
    while jobs.status(target, "long").state is JobState.RUNNING:
        pass
    assert jobs.output(target, "long", "stdout", 0, 100).data.strip() == b"900000"
    assert [entry.name for entry in shell.tmp.iterdir()] == [".differently-jobs"]
    assert [entry.name for entry in (shell.tmp / ".differently-jobs").iterdir()] == ["long"]
