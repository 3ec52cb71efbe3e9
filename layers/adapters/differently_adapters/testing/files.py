"""Files: bytes in, the same bytes out, and nothing by halves."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest

from differently_core.contract import Adapter, Operation, Target
from differently_core.errors import DifferentlyError, InvalidRequest, NotFound, PayloadTooLarge
from differently_core.model.exec import FILE_BYTES_MAX

from .fixtures import Run, SuiteFixtures, needs

ODD_NAMES = [
    "plain", "with space", "quote's", 'double"', "new\nline", "tab\t", "emoji 🙂", "ünï", "-leading", "$HOME", "*",
    "a;b", "back\\slash", "%41", "...", ".hidden",
]  # fmt: skip
MIB = 1_048_576
At = Callable[[str], str]
Read = Callable[[str], bytes]
ALL_FILES = (
    Operation.FILE_READ, Operation.FILE_WRITE, Operation.FILE_LIST, Operation.FILE_STAT, Operation.FILE_DELETE,
)  # fmt: skip


class FileTests(SuiteFixtures):
    @pytest.fixture(autouse=True)
    def _needs_files(self, request: pytest.FixtureRequest) -> None:
        if request.function.__name__ in vars(FileTests):
            needs(request.getfixturevalue("adapter"), *ALL_FILES)

    @pytest.fixture
    def at(self) -> At:
        """A path in the suite's own folder."""
        return lambda name: f"{self.folder}/{name}"

    @pytest.fixture
    def read(self, adapter: Adapter, sandbox: Target) -> Read:
        def read(path: str) -> bytes:
            content = adapter.file_read(sandbox, path)
            data = b"".join(content.chunks)
            assert len(data) == content.size
            return data

        return read

    @pytest.mark.parametrize("data", [b"", b"\x00\xff\n'\x80", b"\r\n\x1a", "é🙂".encode(), b"no newline"])
    def test_bytes_come_back_as_they_went(
        self, adapter: Adapter, sandbox: Target, at: At, read: Read, data: bytes
    ) -> None:
        written = adapter.file_write(sandbox, at("file"), [data])
        assert (written.size, written.is_dir) == (len(data), False)
        assert read(at("file")) == data

    def test_a_mebibyte_of_noise_comes_back(self, adapter: Adapter, sandbox: Target, at: At, read: Read) -> None:
        noise = b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(MIB // 32))
        adapter.file_write(sandbox, at("noise"), [noise[:1], noise[1:700_001], b"", noise[700_001:]])
        assert read(at("noise")) == noise

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, adapter: Adapter, sandbox: Target, at: At, read: Read, name: str) -> None:
        adapter.file_write(sandbox, at(name), [b"odd"])
        assert read(at(name)) == b"odd"
        assert adapter.file_stat(sandbox, at(name)).name == name
        assert [entry.name for entry in adapter.file_list(sandbox, self.folder)] == [name]
        adapter.file_delete(sandbox, at(name))
        assert adapter.file_list(sandbox, self.folder) == []

    def test_parents_are_made(self, adapter: Adapter, sandbox: Target, at: At, read: Read) -> None:
        adapter.file_write(sandbox, at("a/b c/d"), [b"deep"])
        assert read(at("a/b c/d")) == b"deep"
        assert adapter.file_stat(sandbox, at("a/b c")).is_dir

    def test_a_file_is_replaced_whole(self, adapter: Adapter, sandbox: Target, at: At, read: Read) -> None:
        adapter.file_write(sandbox, at("file"), [b"a longer content"])
        adapter.file_write(sandbox, at("file"), [b"short"])
        assert read(at("file")) == b"short"

    def test_a_sender_that_fails_leaves_the_old_file(
        self, adapter: Adapter, sandbox: Target, at: At, read: Read
    ) -> None:
        def cut() -> Iterator[bytes]:
            yield b"new, but "
            raise ConnectionError("the sender went away")

        adapter.file_write(sandbox, at("file"), [b"old"])
        with pytest.raises((ConnectionError, DifferentlyError)):
            adapter.file_write(sandbox, at("file"), cut())
        assert read(at("file")) == b"old"
        assert [entry.name for entry in adapter.file_list(sandbox, self.folder)] == ["file"]

    def test_a_file_over_the_limit_is_refused_and_leaves_nothing(
        self, adapter: Adapter, sandbox: Target, at: At
    ) -> None:
        adapter.file_write(sandbox, at("other"), [b""])
        with pytest.raises(PayloadTooLarge):
            adapter.file_write(sandbox, at("big"), [bytes(MIB), bytes(FILE_BYTES_MAX)])  # the first is on its way
        assert [entry.name for entry in adapter.file_list(sandbox, self.folder)] == ["other"]

    def test_a_list_tells_files_from_directories(self, adapter: Adapter, sandbox: Target, at: At) -> None:
        adapter.file_write(sandbox, at("b"), [b"12345"])
        adapter.file_write(sandbox, at("a/inside"), [b""])
        entries = adapter.file_list(sandbox, self.folder)
        assert [(entry.name, entry.is_dir) for entry in sorted(entries, key=lambda entry: entry.name)] == [
            ("a", True),
            ("b", False),
        ]
        assert next(entry.size for entry in entries if entry.name == "b") == 5

    def test_the_path_of_an_entry_can_be_read(self, adapter: Adapter, sandbox: Target, at: At, read: Read) -> None:
        adapter.file_write(sandbox, at("file"), [b"found"])
        (entry,) = adapter.file_list(sandbox, self.folder)
        assert read(entry.path) == b"found"

    def test_what_is_missing_is_not_found(self, adapter: Adapter, sandbox: Target, at: At) -> None:
        for call in (adapter.file_read, adapter.file_stat, adapter.file_list):
            with pytest.raises(NotFound):
                call(sandbox, at("missing"))

    def test_a_file_is_no_directory_and_a_directory_no_file(self, adapter: Adapter, sandbox: Target, at: At) -> None:
        adapter.file_write(sandbox, at("file"), [b""])
        for call in (
            lambda: adapter.file_list(sandbox, at("file")),
            lambda: adapter.file_read(sandbox, self.folder),
            lambda: adapter.file_write(sandbox, self.folder, [b""]),
            lambda: adapter.file_write(sandbox, at("file/inside"), [b""]),
        ):
            with pytest.raises(InvalidRequest):
                call()

    def test_delete_removes_a_file_or_a_tree_and_missing_is_success(
        self, adapter: Adapter, sandbox: Target, at: At
    ) -> None:
        adapter.file_write(sandbox, at("tree/a/b"), [b""])
        adapter.file_write(sandbox, at("file"), [b""])
        for name in ("tree", "file", "file", "never/was"):
            adapter.file_delete(sandbox, at(name))
        assert adapter.file_list(sandbox, self.folder) == []

    @pytest.mark.parametrize("path", ["../escape", "a/../../escape", "a/..", "nul\0byte", "x" * 300])
    def test_a_path_that_is_none_is_refused(self, adapter: Adapter, sandbox: Target, path: str) -> None:
        for call in (
            lambda: adapter.file_read(sandbox, path),
            lambda: adapter.file_write(sandbox, path, [b"x"]),
            lambda: adapter.file_list(sandbox, path),
            lambda: adapter.file_stat(sandbox, path),
            lambda: adapter.file_delete(sandbox, path),
        ):
            with pytest.raises(InvalidRequest):
                call()

    def test_commands_and_files_see_the_same_disk(
        self, adapter: Adapter, sandbox: Target, at: At, read: Read, run: Run
    ) -> None:
        adapter.file_write(sandbox, at("in"), [b"\x00to the command"])
        result = run(f"cat {self.folder}/in; printf 'from\\377' > {self.folder}/out")
        assert result.stdout == b"\x00to the command"
        assert read(at("out")) == b"from\xff"
