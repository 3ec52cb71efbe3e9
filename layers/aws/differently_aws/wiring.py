"""From the environment of a function to what its operations work with. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from differently_adapters.pools import PoolAdapters
from differently_adapters.webhooks import HttpCourier
from differently_core.operations.catalog import Catalog
from differently_core.operations.core import Core, Tuning
from differently_core.operations.credentials import PoolCredentials, variables
from differently_core.operations.keys import Peppers
from differently_core.runtime.clock import SystemClock
from differently_core.runtime.ids import SystemIds
from differently_core.store.archive import Archive, NoArchive
from differently_core.store.dynamo import DynamoStore
from differently_core.store.kms import KmsSealer
from differently_core.store.sealing import NoSealer, Sealer
from differently_core.store.staging import NoStaging, Staging
from differently_core.store.vaults import AwsVaults

from . import environment, logs, peppers
from .bus import Bus
from .clients import Clients
from .environment import Environment
from .messages import Messages


@dataclass(frozen=True)
class Wiring:
    core: Core
    peppers: Peppers
    messages: Messages
    environment: Environment
    bus: Bus | None = None


def wire(function: str, environ: Mapping[str, str]) -> Wiring:
    """Called once by a boot module, before the first event. Raises `Misconfigured`."""
    told = environment.read(environ)
    logs.configure(function, level=told.log_level, metrics=told.metrics)
    clock = SystemClock()
    ids = SystemIds(clock)
    clients = Clients(told.region, told.endpoint)
    messages = Messages(told, clients)
    store = DynamoStore(told.tables, region=told.region, host=told.endpoint, clock=clock)
    catalog = Catalog(store, clock)
    sealer = _sealer(told)
    credentials = PoolCredentials(
        store, sealer, lambda: catalog.installation().id, environment=variables(environ),
        vaults=AwsVaults(host=told.endpoint),
    )  # fmt: skip
    backends = PoolAdapters(
        clock, lambda: catalog.installation().id, credentials=credentials, minimum=told.minimum_level
    )
    core = Core(
        store=store, clock=clock, ids=ids, nudges=messages, catalog=catalog,
        backends=backends, worker_name=ids.new(function), sealer=sealer, tuning=_tuning(told),
        staging=_staging(told), archive=_archive(told),
        courier=HttpCourier(clock),
    )  # fmt: skip
    bus = Bus(clients, told.event_bus) if told.event_bus is not None else None
    return Wiring(core, peppers.stored(clients, told.pepper_secret, clock), messages, told, bus)


def _tuning(told: Environment) -> Tuning:
    return Tuning(
        retention_seconds=told.retention_seconds, snapshot_retention_seconds=told.snapshot_retention_seconds,
        retention_seconds_max=told.retention_seconds_max,
    )  # fmt: skip


def _archive(told: Environment) -> Archive:
    if told.archive_bucket is None:
        return NoArchive()
    from differently_core.store.s3 import BucketArchive  # as below

    return BucketArchive(told.archive_bucket, region=told.region, host=told.endpoint)


def _staging(told: Environment) -> Staging:
    if told.staging_bucket is None:
        return NoStaging()
    from differently_core.store.s3 import S3Staging  # one function alone has a bucket

    return S3Staging(told.staging_bucket, region=told.region, host=told.endpoint)


def _sealer(told: Environment) -> Sealer:
    """A function that is told of no key can neither keep nor open a credential."""
    if told.secrets_key is None:
        return NoSealer()
    return KmsSealer(told.secrets_key, region=told.region, host=told.endpoint)
