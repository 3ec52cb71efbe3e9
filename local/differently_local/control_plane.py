"""The whole thing in one process, brought up in order and taken down in the reverse."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time

from differently_adapters.pools import PoolAdapters
from differently_adapters.providers.devhost import DevhostAdapter
from differently_adapters.webhooks import HttpCourier
from differently_api.app import App
from differently_api.route import Access, Group
from differently_core.errors import DifferentlyError
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Core, Tuning
from differently_core.operations.credentials import PoolCredentials, variables
from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_core.store.archive import Archive, NoArchive
from differently_core.store.dynamo import Credentials, DynamoStore
from differently_core.store.kms import KmsSealer
from differently_core.store.s3 import BucketArchive, S3Staging
from differently_core.store.staging import NoStaging, Staging
from differently_core.store.vaults import AwsVaults

from . import data_stack, installation, private_files
from .dispatcher import Dispatcher
from .emulator import Emulator
from .failure import Interrupted, StartFailure
from .front import Front
from .functions import Functions, Target
from .installation import Access as Keys
from .settings import Settings
from .signals import StopRequest
from .stream import Followers
from .takeover import release_claims

log = logging.getLogger(__name__)
STORE_CONNECTIONS = 96
"""Function threads, worker threads and the rest at once."""
WATCH_SECONDS = 2.0


def say(text: str) -> None:
    """Progress and results, for the person at the terminal."""
    print(text, flush=True)


def run(settings: Settings, stop: StopRequest) -> int:
    """Serve until a signal; the exit code."""
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        try:
            private_files.make_directory(settings.data_dir)
            _only_one(settings, stack)
            plane = ControlPlane(settings, stop, stack)
            keys = plane.start()
            _record(settings, keys.url)
        except StartFailure as failure:
            print(f"differently: {failure}", file=sys.stderr)
            return 1
        except DifferentlyError as error:
            print(f"differently: the start failed: {error.message}", file=sys.stderr)
            return 1
        except OSError as error:
            print(f"differently: the start failed: {error}", file=sys.stderr)
            return 1
        except Interrupted:
            say("stopping before the start was complete")
            return 130
        _greet(settings, keys, time.monotonic() - started)
        code = plane.watch()
        say("stopping")
    say(f"stopped; state is kept in {settings.data_dir}" if code == 0 else "stopped")
    return code


def _only_one(settings: Settings, stack: contextlib.ExitStack) -> None:
    """Hold the data directory for as long as this process lives."""
    lock = private_files.Lock(settings.data_dir / "run.lock")
    stack.callback(lock.close)
    if lock.take():
        _record(settings, None)
        return
    running = private_files.read_json(settings.data_dir / "run.json")
    where = f"at {running['url']}" if running.get("url") else "and is still starting"
    raise StartFailure(
        f"Differently is already running {where} (pid {running.get('pid')}) with the data in {settings.data_dir}. "
        "Use that one, stop it first, or set DIFFERENTLY_DATA_DIR and PORT for a second one."
    )


def _record(settings: Settings, url: str | None) -> None:
    """For a second start to say where the first one is."""
    private_files.write_json(settings.data_dir / "run.json", {"pid": os.getpid(), "url": url})


class ControlPlane:
    """What is started registers its end on the stack at once, so that no way out leaves anything behind."""

    def __init__(self, settings: Settings, stop: StopRequest, stack: contextlib.ExitStack) -> None:
        self._settings = settings
        self._stop = stop
        self._stack = stack
        self._clock = SystemClock()
        self._ids = SystemIds(self._clock)
        self._emulator = Emulator(settings.data_dir, settings.emulator_python, self._ids, stop, say)

    def start(self) -> Keys:
        front = Front(self._settings.host, self._settings.port, self._clock, self._ids)
        self._stack.callback(front.close)
        self._stack.callback(self._emulator.stop)
        endpoint = self._emulator.obtain()
        made = data_stack.obtain(endpoint, self._stop, say)
        dispatcher = Dispatcher()
        core = self._core(endpoint, made, dispatcher)
        peppers = installation.pepper(self._settings.data_dir, self._ids)
        keys = installation.prepare(core, peppers, self._settings.data_dir, front.url, say)
        if self._settings.config is not None:
            installation.declare(core, self._settings.config, say)
        self._stack.callback(end_commands, core)
        released = release_claims(core)
        if released:
            say(f"taking up {released} sandboxes that the last run was working on")
        self._stack.callback(dispatcher.stop)
        dispatcher.start(core)
        followers = Followers(core, endpoint, made.log_stream)
        self._stack.callback(followers.stop)
        followers.start()
        origins = self._settings.allowed_origins
        app = App(core, peppers, allowed_origins=origins)
        functions = Functions(app.authorizer, lambda method, path: _target(app, method, path), origins)
        self._stack.callback(functions.close)
        front.start(functions.answer)
        self._stack.callback(front.stop)
        return keys

    def _core(self, endpoint: str, made: data_stack.Made, dispatcher: Dispatcher) -> Core:
        credentials = Credentials(data_stack.KEY_ID, data_stack.SECRET)
        store = DynamoStore(
            made.tables, region=data_stack.REGION, host=endpoint, clock=self._clock, connections_max=STORE_CONNECTIONS,
            credentials=credentials,
        )  # fmt: skip
        sealer = KmsSealer(made.secrets_key, region=data_stack.REGION, host=endpoint, credentials=credentials)
        catalog = Catalog(store, self._clock)
        read = PoolCredentials(
            store, sealer, lambda: catalog.installation().id, environment=variables(os.environ),
            vaults=AwsVaults(host=endpoint, credentials=credentials),
        )  # fmt: skip
        backends = PoolAdapters(self._clock, lambda: catalog.installation().id, credentials=read, dev=True)
        return Core(
            store=store, clock=self._clock, ids=self._ids, nudges=dispatcher, catalog=catalog, backends=backends,
            worker_name=self._ids.new("local"), sealer=sealer, tuning=_tuning(self._settings),
            staging=_staging(made, endpoint, credentials),
            archive=_archive(made, endpoint, credentials),
            courier=HttpCourier(self._clock, loopback=self._settings.webhooks_loopback),
        )  # fmt: skip

    def watch(self) -> int:
        """Wait for a signal, or for the emulator to die under us."""
        while not self._stop.wait(WATCH_SECONDS):
            if not self._emulator.alive():
                print(f"differently: {self._why_it_ended()}", file=sys.stderr)
                return 1
        return 0

    def _why_it_ended(self) -> str:
        log_path = self._settings.data_dir / "emulator.log"
        if not log_path.exists():
            return f"{self._settings.data_dir} was removed while it was in use, so there is nothing to go on with."
        return f"the embedded AWS ended by itself; changes since its start are lost. {log_path} may say why."


def _tuning(settings: Settings) -> Tuning:
    return Tuning(
        retention_seconds=settings.retention_seconds, snapshot_retention_seconds=settings.snapshot_retention_seconds,
        retention_seconds_max=settings.retention_seconds_max,
    )  # fmt: skip


def _archive(made: data_stack.Made, endpoint: str, credentials: Credentials) -> Archive:
    if made.archive is None:
        return NoArchive()
    return BucketArchive(made.archive, region=data_stack.REGION, host=endpoint, credentials=credentials)


def _staging(made: data_stack.Made, endpoint: str, credentials: Credentials) -> Staging:
    if made.staging is None:
        say("the data directory is of an older version and has no bucket for large files: uploads are refused")
        return NoStaging()
    return S3Staging(made.staging, region=data_stack.REGION, host=endpoint, credentials=credentials)


def end_commands(core: Core) -> None:
    """End what runs in this machine's sandboxes: nobody is left to read it, or to hold it to its time."""
    try:
        pools = [pool for pool in core.catalog.pools().pools.values() if pool.adapter == DevhostAdapter.kind]
        adapters = [core.backends.adapter(pool) for pool in pools]
        installation = core.catalog.installation().id
    except DifferentlyError as error:
        log.warning("commands were not ended", extra={"why": error.code})
        return
    for adapter in adapters:
        if isinstance(adapter, DevhostAdapter):
            adapter.end_commands(installation)


def _target(app: App, method: str, path: str) -> Target:
    """The function that the API's own declaration names; what it does not know, control answers without a key."""
    route = app.route(method, path)
    if route is None:
        return Target("control", app.control, public=True, timed=True)
    handlers = {Group.CONTROL: app.control, Group.ADMIN: app.admin, Group.DATA: app.data}
    return Target(
        route.group.value, handlers[route.group], public=route.access is Access.PUBLIC,
        timed=route.group is not Group.DATA,
    )  # fmt: skip


def _greet(settings: Settings, keys: Keys, seconds: float) -> None:
    say(
        f"""
Differently is ready at {keys.url} ({seconds:.1f} s)

  tenant key    {keys.tenant_key}
  operator key  {keys.operator_key}
  both are in   {settings.data_dir / "dev.json"}

Make a sandbox and run something in it, from this folder:

  .venv/bin/differently run 'echo hello'

or without anything of ours:

  curl -X POST -H 'Authorization: Bearer {keys.tenant_key}' {keys.url}/v1/sandboxes

Sandboxes of the pool devhost run commands on this machine, without isolation. Ctrl-C stops; state is kept.
"""
    )
