"""A sandbox on disk.

    root/<installation>/<sandbox id>/
        meta.json    whose it is: the proof of ownership (0600)
        env.json     the sandbox's environment, which may hold secrets (0600)
        lock         held shared while a command starts, exclusively while a delete forbids new ones
        deleting     present once a delete was begun
        stopped      present while it is stopped
        starts       one byte for each start after the first
        processes/   one file for each process group that was started
        jobs/        background jobs
        parts/       files that are still arriving
        tmp/  home/  what commands see as TMPDIR and HOME
    root/<installation>/snapshots/   see `snapshots`

A directory appears by one rename and disappears by one, so a crash leaves a whole sandbox or none.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from differently_core.contract import CreateRequest, Owner, Target
from differently_core.errors import InvalidRequest, InvalidState, NotFound, ProviderUnavailable, SandboxFailed
from differently_core.runtime.clock import Clock
from differently_core.runtime.ids import is_id

_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_NEW: Final = ".new-"
_GONE: Final = ".gone-"


class Meta(BaseModel):
    model_config = ConfigDict(frozen=True)

    installation: str
    sandbox: str
    org: str
    project: str
    template: str
    labels: dict[str, str]
    created_at: str

    @property
    def owner(self) -> Owner:
        return Owner(self.installation, self.sandbox)


@dataclass(frozen=True)
class SandboxDirectory:
    path: Path

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def parts(self) -> Path:
        return self.path / "parts"

    @property
    def processes(self) -> Path:
        return self.path / "processes"

    def meta(self) -> Meta | None:
        """What the directory says of itself; None when it is gone."""
        try:
            return Meta.model_validate_json((self.path / "meta.json").read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:  # not proof that it is gone
            raise ProviderUnavailable(f"The sandbox's directory cannot be read ({error.strerror}).") from None
        except ValidationError:
            raise ProviderUnavailable(f"The directory of sandbox {self.path.name} does not say whose it is.") from None

    def env(self) -> dict[str, str]:
        try:
            stored: dict[str, str] = json.loads((self.path / "env.json").read_bytes())
        except (OSError, ValueError):
            raise ProviderUnavailable(f"The environment of sandbox {self.path.name} cannot be read.") from None
        return stored

    def is_deleting(self) -> bool:
        return (self.path / "deleting").exists()

    def is_stopped(self) -> bool:
        return (self.path / "stopped").exists()

    def incarnation(self) -> str:
        """Another after each start: what ran before it is gone."""
        try:
            return str(1 + (self.path / "starts").stat().st_size)
        except FileNotFoundError:
            return "1"

    def check_running(self) -> None:
        self.check_kept()
        if self.is_stopped():
            raise InvalidState(f"Sandbox {self.path.name} is stopped.")

    def check_kept(self) -> None:
        if self.is_deleting():
            raise InvalidState(f"Sandbox {self.path.name} is being deleted.")

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Inside, no stop or delete can begin: a command that starts here is seen and ended by the one that follows."""
        with self._locked(fcntl.LOCK_SH):
            self.check_running()
            yield

    def forbid_commands(self) -> None:
        with self._locked(fcntl.LOCK_EX), _reporting(self.path.name):
            (self.path / "deleting").touch(mode=0o600)

    def stop(self) -> None:
        with self._locked(fcntl.LOCK_EX):
            self.check_kept()
            (self.path / "stopped").touch(mode=0o600)

    def start(self) -> None:
        with self._locked(fcntl.LOCK_EX):
            self.check_kept()
            if self.is_stopped():
                with (self.path / "starts").open("ab") as starts:
                    starts.write(b".")
                (self.path / "stopped").unlink()

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with _reporting(self.path.name):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _reporting(self.path.name):
                fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)


@contextlib.contextmanager
def _reporting(sandbox: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"Sandbox {sandbox} does not exist on this host.") from None
    except OSError as error:
        raise ProviderUnavailable(f"The directory of sandbox {sandbox} cannot be used ({error.strerror}).") from None


class Root:
    """All sandboxes under one root directory."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    def check(self) -> None:
        """Raise `ProviderUnavailable` unless directories can be made here.

        A root that is missing is not made: it may be a disk that is not mounted, and its sandboxes are not gone.
        """
        if not self._path.is_dir():
            raise ProviderUnavailable(
                "The root directory of the pool is missing. Mount it again; or make it, if it was never there or what "
                "it held is gone for good.",
                settled=True,
            )
        if not os.access(self._path, os.R_OK | os.W_OK | os.X_OK):
            raise ProviderUnavailable("The root directory of the pool cannot be written.", settled=True)

    def at(self, owner: Owner) -> SandboxDirectory:
        """Where the sandbox lies, if it does; raises `InvalidRequest` for names that are not ids."""
        place = self.of(owner.installation)
        if not is_id("sbx", owner.sandbox):
            raise InvalidRequest("The sandbox id is not valid.")
        return SandboxDirectory(place / owner.sandbox)

    def of(self, installation: str) -> Path:
        """The directory of an installation; raises `InvalidRequest` for a name that is none."""
        if not _SAFE_NAME.fullmatch(installation):
            raise InvalidRequest("The installation id is not valid.")
        return self._path / installation

    def find(self, target: Target) -> SandboxDirectory:
        """The target's directory; raises `NotFound` when it is missing or says it belongs to somebody else."""
        if target.ref is not None and not is_id("sbx", target.ref):
            raise InvalidRequest("The ref is not a sandbox id.", field="ref")
        directory = self.at(target.owner)
        meta = directory.meta()
        if meta is None or meta.owner != target.owner or target.ref not in {None, target.owner.sandbox}:
            raise NotFound(f"Sandbox {target.owner.sandbox} does not exist on this host.")
        return directory

    def refuse_foreign(self, target: Target) -> None:
        """Raise `NotFound` when the ref names another owner's sandbox: it is there, so it must not pass for gone."""
        if target.ref is not None and (target.ref != target.owner.sandbox or any(self._path.glob(f"*/{target.ref}"))):
            raise NotFound(f"Sandbox {target.owner.sandbox} does not exist on this host.")

    def is_elsewhere(self, owner: Owner) -> bool:
        """Whether another installation has a sandbox of this id here; what carries the id may then be its."""
        return any(place.parent.name != owner.installation for place in self._path.glob(f"*/{owner.sandbox}"))

    def create(self, request: CreateRequest, home: Path | None = None) -> SandboxDirectory:
        """Make the directory, with a copy of `home` if there is one, or return the one that is there already."""
        directory = self.at(request.owner)
        if directory.meta() is not None:
            return directory
        self.check()
        try:
            self._make(directory, request, home)
        except OSError as error:
            if directory.meta() is None:
                raise ProviderUnavailable(
                    f"The sandbox's directory could not be made ({error.strerror}).", settled=True
                ) from None
        return directory

    def _make(self, directory: SandboxDirectory, request: CreateRequest, home: Path | None) -> None:
        parent = directory.path.parent
        parent.mkdir(mode=0o700, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f"{_NEW}{request.owner.sandbox}-", dir=parent))
        try:
            self._fill(SandboxDirectory(fresh), request)
            if home is not None:
                copy_tree(home, SandboxDirectory(fresh).home)
            fresh.rename(directory.path)  # fails when another create was first: a directory in use is not replaced
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def _fill(self, fresh: SandboxDirectory, request: CreateRequest) -> None:
        for folder in (fresh.home, fresh.tmp, fresh.jobs, fresh.parts, fresh.processes):
            folder.mkdir(mode=0o700)
        meta = Meta(
            installation=request.owner.installation, sandbox=request.owner.sandbox, org=request.org,
            project=request.project, template=request.template, labels=dict(request.labels),
            created_at=self._clock.now().isoformat(),
        )  # fmt: skip
        write_private(fresh.path / "env.json", json.dumps(dict(request.env)))
        write_private(fresh.path / "meta.json", meta.model_dump_json())

    def all(self, installation: str) -> list[tuple[Meta, SandboxDirectory]]:
        """Every sandbox of the installation; a directory that says it is somebody else's is left out."""
        found = []
        for name in self._names(installation):
            directory = SandboxDirectory(self.of(installation) / name)
            meta = directory.meta() if is_id("sbx", name) else None
            if meta is not None and meta.owner == Owner(installation, name):
                found.append((meta, directory))
        return found

    def _names(self, installation: str) -> list[str]:
        place = self.of(installation)
        self.check()
        try:
            return sorted(os.listdir(place))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ProviderUnavailable(f"The sandboxes could not be listed ({error.strerror}).") from None

    def remove(self, directory: SandboxDirectory) -> None:
        """Take the directory away in one step, then free what it held."""
        gone = directory.path.with_name(f"{_GONE}{directory.path.name}")
        remove_tree(gone)
        try:
            directory.path.rename(gone)
        except FileNotFoundError:  # another delete was first
            pass
        except OSError as error:
            raise ProviderUnavailable(f"The sandbox's directory could not be removed ({error.strerror}).") from None
        self.sweep(directory)

    def sweep(self, directory: SandboxDirectory) -> None:
        """Remove what a crash during a create or a delete of this sandbox left behind."""
        name = directory.path.name
        for leftover in directory.path.parent.glob(f"{_NEW}{name}-*"):
            remove_tree(leftover)
        remove_tree(directory.path.with_name(f"{_GONE}{name}"))


def remove_tree(path: Path) -> None:
    try:
        _open_up(path)
        shutil.rmtree(path)
    except FileNotFoundError:  # nothing there, or another delete is at it too
        return
    except (OSError, RecursionError) as error:
        # Folders nested by the thousand are too deep for us, and their paths too long for the kernel; rm(1) walks them.
        subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, check=False)
        if path.exists():
            raise ProviderUnavailable(
                f"The sandbox's directory could not be removed ({type(error).__name__})."
            ) from None


def copy_tree(source: Path, place: Path) -> None:
    """Files, folders and links as they are; pipes and sockets are left out, and what is deleted meanwhile is gone."""
    try:
        shutil.copytree(
            source, place, symlinks=True, dirs_exist_ok=True, ignore=_that_hold_nothing, copy_function=_copy_if_there
        )  # fmt: skip
    except (OSError, RecursionError) as error:  # the sandbox's own doing, such as a folder that nobody may read
        raise SandboxFailed(f"The sandbox's home could not be copied ({type(error).__name__}).", settled=True) from None


def _that_hold_nothing(folder: str, names: list[str]) -> list[str]:
    kinds = {entry.name: entry for entry in os.scandir(folder)}
    return [name for name in names if (entry := kinds.get(name)) is None or not _holds_something(entry)]


def _holds_something(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() or entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _copy_if_there(source: str, place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, place, follow_symlinks=False)


def _open_up(path: Path) -> None:
    """A command may have taken our permissions away."""
    folders = [path]
    while folders:
        folder = folders.pop()
        folder.chmod(0o700)
        folders += [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]


def write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def base_env(directory: SandboxDirectory, path: str) -> Mapping[str, str]:
    """All that a command gets besides the sandbox's and its own environment."""
    return {
        "PATH": path,
        "HOME": str(directory.home),
        "TMPDIR": str(directory.tmp),
        "LANG": "C.UTF-8",
    }
