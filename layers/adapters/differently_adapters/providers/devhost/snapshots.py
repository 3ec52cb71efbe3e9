"""Snapshots of a sandbox's home, beside the sandboxes and living longer than they do.

    root/<installation>/snapshots/<ref>/
        meta.json    whose it is and how much it holds (0600)
        home/        the copy

The ref follows from the sandbox and the operation, so one operation makes one snapshot however often it is asked for.
A snapshot appears by one rename and disappears by one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from differently_core.contract import Owner, SnapshotInfo, SnapshotKind, SnapshotRequest, SnapshotState
from differently_core.errors import NotFound, ProviderUnavailable, SandboxFailed
from differently_core.runtime.clock import Clock

from .directory import Root, SandboxDirectory, copy_tree, remove_tree, write_private

FOLDER: Final = "snapshots"
_REF: Final = re.compile("snap-[0-9a-f]{32}")


class SnapshotMeta(BaseModel):
    model_config = ConfigDict(frozen=True)

    installation: str
    sandbox: str
    name: str
    size_bytes: int
    created_at: str

    @property
    def owner(self) -> Owner:
        return Owner(self.installation, self.sandbox)


class Snapshots:
    def __init__(self, root: Root, clock: Clock) -> None:
        self._root = root
        self._clock = clock

    def take(self, owner: Owner, directory: SandboxDirectory, request: SnapshotRequest) -> SnapshotInfo:
        directory.check_kept()
        place = self._folder(owner) / _ref(owner, request.operation)
        if not place.exists():
            self._root.check()
            try:
                self._copy(owner, directory, request, place)
            except SandboxFailed:
                if directory.meta() is None:  # deleted meanwhile
                    raise NotFound(f"Sandbox {owner.sandbox} does not exist on this host.") from None
                raise
            except OSError as error:
                if not place.exists():  # else another call with this operation was first
                    raise ProviderUnavailable(
                        f"The snapshot could not be kept ({error.strerror}).", settled=True
                    ) from None
        return self.get(owner, place.name)

    def _copy(self, owner: Owner, directory: SandboxDirectory, request: SnapshotRequest, place: Path) -> None:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".new-{place.name}-", dir=place.parent))
        try:
            (fresh / "home").mkdir(mode=0o700)
            copy_tree(directory.home, fresh / "home")
            meta = SnapshotMeta(
                installation=owner.installation, sandbox=owner.sandbox, name=request.name,
                size_bytes=_size(fresh / "home"), created_at=self._clock.now().isoformat(),
            )  # fmt: skip
            write_private(fresh / "meta.json", meta.model_dump_json())
            directory.check_kept()
            fresh.rename(place)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise

    def get(self, owner: Owner, ref: str) -> SnapshotInfo:
        meta = self._meta(owner.installation, ref)
        if meta is None or meta.owner != owner:
            raise _missing(ref)
        return SnapshotInfo(ref, owner, SnapshotKind.DISK, SnapshotState.READY, meta.size_bytes)

    def home(self, installation: str, ref: str) -> Path:
        """What a new sandbox of the installation starts from; `NotFound` for another installation's."""
        meta = self._meta(installation, ref)
        if meta is None or meta.installation != installation:
            raise _missing(ref)
        return self._folder(meta.owner) / ref / "home"

    def delete(self, owner: Owner, ref: str) -> None:
        if not _REF.fullmatch(ref):
            return
        place = self._folder(owner) / ref
        meta = self._meta(owner.installation, ref)
        if meta is not None and meta.owner != owner:
            raise _missing(ref)
        if meta is None and any(
            place.parents[2].glob(f"*/{FOLDER}/{ref}")
        ):  # it is there, so it must not pass for gone
            raise _missing(ref)
        with contextlib.suppress(FileNotFoundError):  # nothing there, or another delete was first
            place.rename(place.with_name(f".gone-{ref}"))
        for leftover in place.parent.glob(f".*-{ref}*"):  # also what a crash left behind
            remove_tree(leftover)

    def _folder(self, owner: Owner) -> Path:
        return self._root.of(owner.installation) / FOLDER

    def _meta(self, installation: str, ref: str) -> SnapshotMeta | None:
        if not _REF.fullmatch(ref):
            return None
        path = self._root.of(installation) / FOLDER / ref / "meta.json"
        try:
            return SnapshotMeta.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:  # not proof that it is gone
            raise ProviderUnavailable(f"The snapshot cannot be read ({error.strerror}).") from None
        except ValidationError:
            raise ProviderUnavailable(f"Snapshot {ref} does not say whose it is.") from None


def _ref(owner: Owner, operation: str) -> str:
    text = f"{owner.installation}\0{owner.sandbox}\0{operation}"
    return f"snap-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _missing(ref: str) -> NotFound:
    return NotFound(f"There is no snapshot {ref!r} on this host.")
