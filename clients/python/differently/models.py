"""The objects of the API, as answers hold them; docs/reference/api.md describes each."""

# Made from the API's description: python -m differently_api.reference docs/reference

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from ._model import Model


class AuditEvent(Model):
    """All but `seq` and `hash` is the event; its canonical JSON without these two is what the hash is of."""

    seq: int
    """Its place in its organization's chain, from 0; the index of its leaf."""
    hash: str
    """Of the leaf, in base64: SHA-256 of a zero byte and the event's canonical JSON."""
    id: str
    org: str
    at: str
    actor: str
    """A key's id, or `system:` and the part that acted by itself."""
    request_id: str
    """The request that caused it."""
    action: str
    target: str
    project: str | None
    pool: str | None
    before: str | None
    after: str | None
    details: dict[str, Any] | None


class Blocker(Model):
    """A counter that does not let it in now."""

    scope: str
    """One of `org`, `project`, `pool`; a newer server may know more."""
    reason: str
    """`full`, `closed`, or `others_wait`: nobody overtakes. Of pools why none takes it now, such as `draining`."""
    resource: str | None
    """Which is used up, for `full`."""


class BudgetView(Model):
    scope: str
    org: str
    project: str | None
    limit: float
    currency: str
    thresholds: list[int]
    action: str
    """One of `alert`, `queue`, `pause`, `stop`; a newer server may know more."""
    updated_at: datetime
    updated_by: str
    period_ends_at: datetime
    """When the next month begins."""
    spent: float | None
    """This month, until `asOf`; estimates. Absent before the first look."""
    projected: float | None
    """What is spent, and what may still come of what runs until it ends or the month does."""
    reached: list[int]
    """Thresholds that were reached this month."""
    uncounted: bool = False
    """True when something runs, or ran, at a price that is unknown or in another currency."""
    as_of: datetime | None


class Capabilities(Model):
    pools: list[PoolOffer]


class ClassPolicy(Model):
    """What a classification takes away from the rules around it. What is left out takes nothing away."""

    external: str | None
    """One of `never`, `allowed`; a newer server may know more."""
    external_pools: list[str] | None
    allowed_pools: list[str] | None
    denied_pools: list[str]
    egress: EgressCeiling | None
    secrets_in_env: bool | None


class ClosingView(Model):
    """How far archiving or deleting has come, and what it waits for."""

    target: str
    """One of `active`, `suspended`, `archiving`, `archived`, `deleting`, `deleted`; a newer server may know more."""
    requested_by: str
    requested_at: datetime
    removed: int
    """Sandboxes and snapshots that were told to go."""
    waits_for: str


class ConditionView(Model):
    at: datetime
    evidence: str


class ConditionsView(Model):
    seen: ConditionView | None
    reachable: ConditionView | None
    prepared: ConditionView | None
    admitted: ConditionView | None


class ConsistencyView(Model):
    """A consistency proof of RFC 6962; hashes in base64."""

    from_size: int
    to_size: int
    from_root: str
    to_root: str
    path: list[str]


class CostModel(Model):
    """Prices of an hour, for estimates only. Without a price for processors and one for memory the cost is unknown;
    with one of the two, the other is taken for free. A change counts for what is admitted, put to rest or woken from
    then on.
    """

    _names: ClassVar[dict[str, str]] = {"memory_gib_hour": "memoryGiBHour"}
    cpu_hour: float | None
    """Of one virtual CPU that was asked for, whether it is used or not."""
    memory_gib_hour: float | None
    kept_hour: float | None
    """Of one sandbox at rest, whatever its size. Absent: nothing is counted while it is stopped or paused."""
    currency: str = "USD"
    """ISO 4217. Costs in different currencies are never added; placement compares prices as they stand."""


class CreateSandbox(Model):
    """Body of a create. Everything has a default, so `{}` works."""

    project_id: str | None
    profile: str | None
    """Named defaults for what this body leaves out."""
    template: str = "default"
    image: str | None
    """Instead of the template's, on the pools that take any."""
    snapshot_id: str | None
    """Made from this snapshot, on the pool that keeps it; what is left out is as it was when that was taken."""
    resources: Resources
    env: dict[str, Any]
    secrets: list[GiveSecret]
    """Secrets of the project, if policies allow them in an environment. Their values are masked in what commands write.
    """
    labels: dict[str, Any]
    capabilities: list[str]
    placement: Placement
    ttl_seconds: int = 0
    """0 means the operator's default."""
    max_run_seconds: int | None
    """Running for so long at a stretch it is paused, or stopped, or where its pool can do neither ended. 0 is never."""
    idle_timeout_seconds: int | None
    """Not used for so long it is paused, or stopped where the pool cannot pause, and wakes on its next use. 0 is never,
    else at least 10; absent means the operator's default.
    """
    queue_timeout_seconds: int | None
    """0 refuses at once what cannot start now."""
    priority: int = 0
    egress: Egress | None
    """A pool that cannot hold it to this is not chosen."""
    preemptible: bool = False
    """Nobody having used it for a minute, it may be paused for work that waits; its next use wakes it."""
    classification: str = "default"
    """Of the work in it: policies may restrict some classifications to some pools."""


class CredentialNeed(Model):
    """The credential of a pool of the kind. Its fields are write-only and stand in no configuration."""

    need: str
    """One of `required`, `optional`, `none`; a newer server may know more."""
    fields: list[str]


class Deletion(Model):
    """Answer to a delete: accepted, and where it stands. The record itself stays readable."""

    id: str
    status: str
    """One of `queued`, `provisioning`, `running`, `pausing`, `paused`, `resuming`, `stopping`, `stopped`, `starting`,
    `terminating`, `terminated`, `failed`; a newer server may know more.
    """
    requested_at: datetime


class DeliveryView(Model):
    id: str
    """The event's id, which is also the `webhook-id` header."""
    type: str
    subject: str
    status: str
    """One of `pending`, `delivered`, `failed`; a newer server may know more."""
    tries: int
    last_try: TryView | None
    next_try_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


class DisabledView(Model):
    code: str
    """`asked`, `gone` (the receiver answered 410) or `failing` (it took nothing for five days)."""
    at: datetime


class Discovered(Model):
    """Names, each with a short description."""

    templates: dict[str, str]
    regions: dict[str, str]


class Effective(Model):
    """What was asked for, as it is in force where the sandbox is."""

    ttl_seconds: int
    idle_timeout_seconds: int | None
    """Absent where it is never put to rest for not being used."""
    expires_at: datetime | None
    """Sooner than was asked for where its pool cannot keep it for so long, and policy permits that."""
    retention_seconds: int | None
    """How long it is kept while it is stopped or paused."""
    egress: Egress | None
    """Absent while nothing is restricted."""


class Egress(Model):
    """What it may reach. A denial always wins; the policies that apply may take more away."""

    allow: list[str] | None
    """Host names, wildcards such as `*.example.com`, addresses and CIDR blocks: only these. An empty list means
    nothing, absent means what the policies permit.
    """
    deny: list[str]
    """Never these."""


class EgressCeiling(Model):
    """The most that a sandbox may reach."""

    allow: list[str] | None
    """Host names, wildcards such as `*.example.com`, addresses and CIDR blocks; absent means everything, an empty list
    nothing. Whether a name leads into a block is not known, so a block does not permit a name.
    """
    deny: list[str]
    """Never these; a denial always wins."""


class ExecResult(Model):
    """A finished command. A non-zero exit code is a result, not an error."""

    exit_code: int
    stdout: str
    stderr: str
    duration_ms: int
    truncated: bool = False
    stdout_dropped_bytes: int = 0
    stderr_dropped_bytes: int = 0
    timed_out: bool = False
    encoding: str = "utf-8"
    """One of `utf-8`, `base64`; a newer server may know more."""


class ExplainedError(Model):
    code: str
    message: str


class ExposedPort(Model):
    port: int
    url: str
    """Whoever has it can reach the port, so treat it as a secret. It is told here and kept nowhere."""
    expires_at: datetime


class FileDeleted(Model):
    path: str
    deleted: bool = True


class FileInfo(Model):
    name: str
    path: str
    size: int
    is_dir: bool
    mode: str
    modified_at: datetime | None


class GiveSecret(Model):
    """The value that a secret of the project has now becomes this environment variable."""

    env: str
    secret: str


class GivenSecretView(Model):
    env: str
    secret: str
    version: int
    """Of the secret, as it was at the create; a replacement does not reach this sandbox."""


class Health(Model):
    status: str = "ok"


class IsolationView(Model):
    value: str | None
    known: str
    """One of `confirmed`, `declared`, `unknown`; a newer server may know more."""
    by: str | None
    """Who says so: `kind`, `configuration`, `plugin`, or `us`."""


class Job(Model):
    id: str
    state: str
    """One of `running`, `exited`, `stopped`, `timed_out`, `lost`; a newer server may know more."""
    exit_code: int | None
    started_at: datetime | None
    stdout_bytes: int = 0
    stderr_bytes: int = 0


class JobOutputView(Model):
    data: str
    next: int
    """The offset to read from next. A character that is not whole yet is left for that read."""
    ended: bool
    """True when nothing more can come."""


class KeyView(Model):
    id: str
    name: str
    scope: str
    """One of `operator`, `tenant`; a newer server may know more."""
    org: str | None
    project: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The key that takes its place."""


class KindView(Model):
    kind: str
    summary: str
    trust: str
    """Who says whether its pools are private or external. One of `always_external`, `operator_declares`, `dev_only`; a
    newer server may know more.
    """
    verification: str
    """The most real thing that it was tested against. One of `live`, `real server`, `vendor SDK`, `fake`; a newer
    server may know more.
    """
    config: dict[str, Any]
    """JSON Schema of a pool's `config`."""
    identity: list[str]
    """Fields of `config` that say which backend a pool leads to; they stay while the pool holds anything."""
    credential: CredentialNeed
    limits: list[str]
    """What it cannot do, or does otherwise than one would expect."""
    unsupported: dict[str, str]
    """Operations that it does not offer, each with its reason."""


class MoveView(Model):
    kind: str
    """One of `stop`, `start`, `pause`, `resume`; a newer server may know more."""
    asked_at: datetime
    wanted_back: bool | None
    """`true` while a stop or pause is under way and it was asked to run again since."""
    deadline: datetime
    """By then it is over, one way or the other."""


class NewKeyView(Model):
    id: str
    name: str
    scope: str
    """One of `operator`, `tenant`; a newer server may know more."""
    org: str | None
    project: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The key that takes its place."""
    token: str
    """The key itself. It is shown here and never again."""


class NewWebhookView(Model):
    id: str
    org: str
    project: str | None
    url: str
    events: list[str]
    description: str
    enabled: bool
    disabled: DisabledView | None
    secrets: int
    """How many sign: two while one is being replaced."""
    created_at: datetime
    created_by: str
    updated_at: datetime
    secret: str
    """The signing secret, `whsec_…`. It is shown here and never again."""


class Offer(Model):
    """What a pool can do. No templates means any."""

    features: list[str]
    limits: SizeLimit
    templates: list[str]
    regions: list[str]


class OrgView(Model):
    id: str
    name: str
    weight: int
    state: str
    """One of `active`, `suspended`, `archiving`, `archived`, `deleting`, `deleted`; a newer server may know more."""
    state_reason: StateReasonView | None
    closing: ClosingView | None
    created_at: datetime


class Placement(Model):
    """Where it may and should run, within what policies permit. Private pools come before external ones."""

    allowed_pools: list[str]
    """Only these pools; any when empty."""
    regions: list[str]
    """Only pools of these regions, the first named first; any when empty."""
    preferred_pools: list[str]
    """These first and in this order; when none of them can take it, any other."""


class PlacementCandidate(Model):
    pool: str
    eligible: bool
    rank: int | None
    """Among the eligible ones, 1 is the best."""
    trust: str
    """One of `private`, `external`; a newer server may know more."""
    region: str | None
    hourly_cost: float
    """An estimate from the pool's own prices, in the operator's currency."""
    reason: str | None
    """Why not; absent for an eligible one."""
    permanence: str | None
    """`not_now` passes by itself, `never` does not. One of `not_now`, `never`; a newer server may know more."""
    detail: str | None
    """What was missing, or how much."""
    hint: str | None
    """What could change it."""


class PlacementExplanation(Model):
    decision: str
    """One of `place`, `wait`, `reject`; a newer server may know more."""
    pool: str | None
    summary: str
    """One line: `1/3 pools: 1 draining, 1 full`."""
    error: ExplainedError | None
    waits_for: list[Blocker]
    candidates: list[PlacementCandidate]
    """The best first, then those that refuse."""
    refused_by_policy: int | None
    """Pools that are not for this project: they are counted, not named. Absent for operators, who see them all."""


class PlacementView(Model):
    sandbox: str
    project: str | None
    pool: str
    trust: str | None
    """Of the pool as it is now; absent for one that was removed. One of `private`, `external`; a newer server may know
    more.
    """
    decision: str
    """`create`: at once; `admit`: out of the queue; `start`, `resume`: woken, where it was kept."""
    at: datetime
    event: str
    """The row of the audit log that holds the decision."""
    actor: str
    request_id: str


class PolicyBody(Model):
    """What is left out permits no external pool and every private one."""

    external: str = "never"
    """`allowed` opens the external pools that `externalPools` names, if every wider policy does too. One of `never`,
    `allowed`; a newer server may know more.
    """
    external_pools: list[str]
    allowed_pools: list[str] | None
    """Only these pools; absent means any, an empty list none."""
    denied_pools: list[str]
    egress: EgressCeiling | None
    """A pool that cannot enforce it takes none of this scope's sandboxes."""
    pool_egress: dict[str, Any]
    """The same, for the sandboxes in one pool."""
    secrets_in_env: bool = False
    """Sandboxes may be given secrets of their project as environment variables, if every wider policy says so too."""
    shorter_lifetime: bool | None
    """`true` permits pools that cannot keep a sandbox for its whole `ttlSeconds`: it then shows a sooner `expiresAt`.
    The global policy must say so; `false` in a narrower one forbids it again.
    """
    retention_seconds: int | None
    """How long a sandbox is kept while it is stopped or paused, from its next rest on; absent means as the installation
    says. Of several policies the shortest counts.
    """
    strategy: str | None
    """Which of several pools is tried first, after private ones and what the caller prefers: the `cheapest` (also when
    no policy says anything), each in proportion to its `maxConcurrency` (`spread`), or the first by name that has
    room (`pack`). The narrowest policy that says one counts. One of `cheapest`, `spread`, `pack`; a newer server may
    know more.
    """
    snapshot_retention_seconds: int | None
    """The most that a snapshot may ask for, and what one gets that asks for nothing."""
    command_log: str | None
    """What the audit log keeps of commands, jobs and file calls: `none`, a keyed `hash`, or the `text` without the
    values of the sandbox's secrets. Of several policies the one that keeps most counts; where none says anything it
    is `hash`. One of `none`, `hash`, `text`; a newer server may know more.
    """
    classifications: dict[str, Any]
    """By the `classification` that a sandbox is created with. `default` is for those not listed here."""


class PolicyView(Model):
    scope: str
    rules: PolicyBody
    version: int
    updated_at: datetime | None
    updated_by: str | None
    warnings: list[str]
    """What may not be meant, such as a name that leads to no pool now."""


class PoolDetailView(Model):
    name: str
    adapter: str
    trust: str
    """One of `private`, `external`; a newer server may know more."""
    region: str | None
    state: str
    """One of `active`, `draining`; a newer server may know more."""
    max_concurrency: int
    max_retained: int | None
    """Absent where any number of stopped and paused sandboxes is kept."""
    cost_model: CostModel
    config: dict[str, Any]
    credential: str | None
    """Where it is kept; never what it is."""
    created_at: datetime
    generation: int
    """Rises with every change of the pool."""
    fingerprint: str | None
    """The same for pools that lead to one backend; absent when the kind is not built."""
    held: int = 0
    """Sandboxes, and cleanups not finished yet, that hold a place."""
    retained: int = 0
    """Sandboxes that are kept without running, or on their way there or back, and cleanups of such."""
    health: PoolHealth | None
    capabilities: Offer | None
    capacity: Room | None
    queue: PoolQueue | None
    """Absent while nothing waits for it; not in the list of pools."""


class PoolHealth(Model):
    """What the last probe saw."""

    healthy: bool
    message: str = ""
    version: str | None
    """Of the backend, where it tells."""
    warnings: list[str]
    """What an operator should know although the pool works."""
    at: datetime


class PoolHeld(Model):
    _names: ClassVar[dict[str, str]] = {"memory_mib": "memoryMiB", "disk_gib": "diskGiB"}
    slots: int
    cpu: float
    memory_mib: int
    disk_gib: int
    retained: int


class PoolOffer(Model):
    name: str
    trust: str
    """One of `private`, `external`; a newer server may know more."""
    region: str | None
    accepting: bool
    """False while it drains or its backend does not answer: new sandboxes wait or go elsewhere."""
    features: list[str]
    limits: SizeLimit
    templates: list[str]
    regions: list[str]


class PoolQueue(Model):
    """What waits for room in the pool, as dispatch last saw it; in a very long queue of what it looked at."""

    _names: ClassVar[dict[str, str]] = {"memory_mib": "memoryMiB"}
    waiting: int
    cpu: float
    memory_mib: int
    oldest_at: datetime | None
    at: datetime


class PoolReason(Model):
    pool: str
    reason: str


class PoolRepair(Model):
    """`held`: what sandboxes and cleanups really hold. `drift`: what the counter said beyond that before the repair."""

    held: PoolHeld
    drift: PoolHeld
    repaired: bool


class PoolTrust(Model):
    pool: str
    adapter: str
    trust: str
    """One of `private`, `external`; a newer server may know more."""
    trust_by: str | None
    """Who says so. Absent for a kind that this build does not have. One of `always_external`, `operator_declares`,
    `dev_only`; a newer server may know more.
    """
    isolation: IsolationView
    region: str | None
    verification: str | None
    """The most real thing that its adapter was tested against. One of `live`, `real server`, `vendor SDK`, `fake`; a
    newer server may know more.
    """
    egress_control: bool | None
    """Whether it can limit what sandboxes reach; absent before its first good probe."""
    probed_at: datetime | None
    healthy: bool | None
    limitations: list[str]
    endpoint: dict[str, str] | None
    """What leads to its backend; of an address the host alone. For operators."""
    credential: str | None
    """A reference: where it is kept, never what it is. For operators."""
    use: PoolUse | None
    """For operators."""


class PoolUse(Model):
    """Who may use it by policy. Room, capabilities and lifetimes are another matter."""

    global_policy: bool
    """Whether the policy of the installation permits it. Where it does not, nobody may."""
    narrowed: dict[str, bool]
    """Organizations and projects with a policy of their own, and whether that permits it too."""


class PortClosed(Model):
    port: int
    status: str
    """`closing` while the backend has not confirmed it; it is asked until it does. One of `closed`, `closing`; a newer
    server may know more.
    """


class PortView(Model):
    """An open port, without its address; open it again to be told that."""

    port: int
    status: str
    """One of `opening`, `open`, `closing`; a newer server may know more."""
    opened_at: datetime
    expires_at: datetime


class ProfileView(Model):
    name: str
    description: str = ""
    defaults: CreateSandbox
    version: int


class ProjectSecretView(Model):
    """What may be told of a secret. Its value is told to nobody."""

    name: str
    version: int
    """Rises with every replacement."""
    created_at: datetime
    updated_at: datetime
    updated_by: str


class ProjectView(Model):
    id: str
    org: str
    name: str
    state: str
    """One of `active`, `suspended`, `archiving`, `archived`, `deleting`, `deleted`; a newer server may know more."""
    state_reason: StateReasonView | None
    closing: ClosingView | None
    created_at: datetime


class ProofView(Model):
    """An inclusion proof of RFC 6962; hashes in base64."""

    event: str
    seq: int
    leaf_hash: str
    tree_size: int
    root_hash: str
    path: list[str]
    """What the leaf's hash is combined with, from the leaf up."""


class QueueEntry(Model):
    sandbox: str
    org: str
    project: str
    position: int
    """From 1, within the organization: higher priorities first, then the older. It is not the order between
    organizations, which take turns by what each holds.
    """
    priority: int
    wakes: bool
    """True for one that was stopped or paused and is to run again."""
    since: datetime | None
    age_seconds: float
    not_before: datetime | None
    reason: str
    """One of `quota`, `no_room`, `later`, `policy_unreadable`, `turn`; a newer server may know more."""
    detail: str | None
    """Such as the pools that have no room: `main: full`."""


class Quota(Model):
    """May be held at once, and asked for by one sandbox. What is left out gets the default; null means no limit."""

    _names: ClassVar[dict[str, str]] = {
        "max_cpu": "maxCPU",
        "max_memory_mib": "maxMemoryMiB",
        "max_disk_gib": "maxDiskGiB",
        "max_ttl_seconds": "maxTTLSeconds",
        "max_snapshot_gib": "maxSnapshotGiB",
    }
    max_concurrent: int = 100
    """Sandboxes that hold a place at once; more wait in the queue."""
    max_cpu: float | None
    max_memory_mib: int | None
    max_disk_gib: int | None
    max_ttl_seconds: int = 604800
    max_queued: int | None
    """Sandboxes that may wait at once, exactly; more are refused with `queue_full`. Null sets no bound of its own: then
    10,000 of an organization is where a guard begins to refuse. What waits already when a bound is set is not
    counted.
    """
    max_snapshots: int = 100
    """Snapshots kept at once."""
    max_snapshot_gib: int | None
    """Once so much is kept, or more, no further snapshot is taken."""
    per_sandbox: SandboxLimit


class QuotaUsed(Model):
    _names: ClassVar[dict[str, str]] = {"memory_mib": "memoryMiB", "disk_gib": "diskGiB"}
    concurrent: int
    cpu: float
    memory_mib: int
    disk_gib: int
    snapshots: int
    snapshot_bytes: int
    queued: int
    """Sandboxes that hold a place in the queue; counted while `maxQueued` is set."""


class QuotaView(Model):
    """`limits` can be changed and sent back. `waiting`: sandboxes in the queue that wait for this quota."""

    limits: Quota
    used: QuotaUsed
    waiting: int = 0


class ReconcileReport(Model):
    """One pass over one pool. What is found once is a suspect; it is acted on when a later pass finds it again."""

    pool: str
    instances: int
    attempts: int
    orphans_deleted: int
    lost: int
    followed: int
    nudged: int
    """Attempts under way past their time: looked at again, then adopted, repeated or given up."""
    suspects: int
    unowned_skipped: int
    """Instances that are not provably ours: never touched."""
    error: str | None
    """Why the pool was left out of this pass."""


class RepairView(Model):
    """`held`: what its sandboxes and snapshots really hold. `drift`: what the counters said beyond that, before the
    repair.
    """

    held: QuotaUsed
    drift: QuotaUsed
    repaired: bool


class ReplayView(Model):
    from_: datetime
    to: datetime
    offered: int
    """Events that were put on their way so far."""


class Resources(Model):
    """The size a caller asks for. Units: virtual CPUs (steps of 0.001), MiB of memory, GiB of disk."""

    _names: ClassVar[dict[str, str]] = {"memory_mib": "memoryMiB", "disk_gib": "diskGiB"}
    cpu: float | None
    memory_mib: int | None
    disk_gib: int | None


class ResourcesView(Model):
    _names: ClassVar[dict[str, str]] = {"memory_mib": "memoryMiB", "disk_gib": "diskGiB"}
    cpu: float
    memory_mib: int
    disk_gib: int


class Room(Model):
    """Free room at the backend, where it tells."""

    _names: ClassVar[dict[str, str]] = {
        "free_memory_mib": "freeMemoryMiB",
        "largest_free_memory_mib": "largestFreeMemoryMiB",
    }
    free_cpu: float
    free_memory_mib: int
    largest_free_cpu: float
    largest_free_memory_mib: int


class RootView(Model):
    size: int
    hash: str
    at: datetime
    checkpoint: str
    """The text to keep: a checkpoint of C2SP, whose fourth line names the one before by its digest."""


class RotatedKeyView(Model):
    """The new key. `replaced` is the old one, with the moment at which it ends."""

    id: str
    name: str
    scope: str
    """One of `operator`, `tenant`; a newer server may know more."""
    org: str | None
    project: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    rotated_to: str | None
    """The key that takes its place."""
    token: str
    """The key itself. It is shown here and never again."""
    replaced: KeyView


class SandboxLimit(Model):
    """The most that one sandbox may ask for. What is left out gets the default; null means no limit."""

    _names: ClassVar[dict[str, str]] = {
        "max_cpu": "maxCPU",
        "max_memory_mib": "maxMemoryMiB",
        "max_disk_gib": "maxDiskGiB",
    }
    max_cpu: float | None = 64.0
    max_memory_mib: int | None = 262144
    max_disk_gib: int | None = 2048


class SandboxView(Model):
    """A sandbox as callers see it; `backendRef` is for operators only."""

    id: str
    org: str
    project: str
    status: str
    """One of `queued`, `provisioning`, `running`, `pausing`, `paused`, `resuming`, `stopping`, `stopped`, `starting`,
    `terminating`, `terminated`, `failed`; a newer server may know more.
    """
    status_reason: StatusReason | None
    move: MoveView | None
    """The stop, start, pause or resume that it is in the middle of; on a queued sandbox what it waits for."""
    conditions: ConditionsView
    template: str
    profile: str | None
    image: str | None
    snapshot_id: str | None
    """What it was made from."""
    forked_from: str | None
    resources: ResourcesView
    secrets: list[GivenSecretView]
    """What it was given; never a value."""
    labels: dict[str, str]
    capabilities: list[str]
    priority: int = 0
    preemptible: bool | None
    classification: str = "default"
    egress: Egress | None
    pool: str | None
    region: str | None
    ttl_seconds: int
    idle_timeout_seconds: int | None
    max_run_seconds: int | None
    effective: Effective
    attempts: int = 0
    waiting_for: list[PoolReason]
    created_at: datetime
    created_by: str
    queue_deadline: datetime | None
    started_at: datetime | None
    expires_at: datetime | None
    kept_until: datetime | None
    """While it is stopped or paused: it ends then, if it is not awake again."""
    ended_at: datetime | None
    last_activity_at: datetime | None
    """Noted at most every 30 seconds. Reading a sandbox is no use of it."""
    idled: bool | None
    """`true` for one that was put to rest because nobody used it: its next use wakes it."""
    idle_at: datetime | None
    """When it is put to rest if nobody uses it."""
    busy_with: list[str] | None
    """What keeps it awake: calls that wait for their command, and jobs."""
    busy_until: datetime | None
    """Until then at the latest."""
    backend_ref: str | None


class SecretView(Model):
    """What may be told of a secret. Its values are told to nobody."""

    name: str
    version: int
    """Rises with every replacement."""
    fields: list[str]
    pools: int
    """How many pools use it."""
    created_at: datetime
    updated_at: datetime
    updated_by: str


class SizeLimit(Model):
    """Of one sandbox; what is absent is not limited."""

    _names: ClassVar[dict[str, str]] = {"memory_mib": "memoryMiB", "disk_gib": "diskGiB"}
    cpu: float | None
    memory_mib: int | None
    disk_gib: int | None


class SnapshotView(Model):
    """A snapshot as callers see it; `ref` is for operators only."""

    id: str
    org: str
    project: str
    sandbox_id: str
    """What it was taken of; it may be gone."""
    status: str
    """One of `creating`, `ready`, `failed`, `broken`, `deleting`; a newer server may know more."""
    status_reason: StatusReason | None
    kind: str
    """One of `disk`, `memory`; a newer server may know more."""
    name: str = ""
    size_bytes: int | None
    """Absent until it is ready, and where the pool does not tell."""
    template: str
    resources: ResourcesView
    """Of the sandbox that it was taken of: a restore needs as much disk."""
    pool: str
    created_at: datetime
    created_by: str
    ready_at: datetime | None
    retain_until: datetime
    fork_id: str | None
    """The sandbox that it is taken for; when that is made it goes by itself."""
    ref: str | None


class StateReasonView(Model):
    """Why it is in its state, who put it there (a key's id), and when."""

    detail: str
    by: str
    at: datetime


class StatusReason(Model):
    code: str
    source: str
    detail: str
    at: datetime


class TemplateView(Model):
    name: str
    images: dict[str, str]
    """With a tenant's key, of the pools that it may use."""
    resources: Resources
    version: int
    warnings: list[str]
    """Such as a name that leads to no pool now; for operators."""


class TrustReport(Model):
    as_of: datetime
    pools: list[PoolTrust]


class TryView(Model):
    at: datetime
    status: int | None
    """Of the receiver's answer; absent when there was none."""
    failure: str | None
    """Absent when it was delivered. One of `address`, `unreachable`, `tls`, `timeout`, `broken`, `redirect`, `refused`,
    `busy`, `gone`, `error`, `disabled`; a newer server may know more.
    """
    duration_ms: int


class UploadView(Model):
    """Where to send the bytes, with these headers and without a key: the address itself is the permission. It takes
    them until `sendBy`; until `expiresAt` they can be made a file.
    """

    id: str
    method: str = "PUT"
    url: str
    headers: dict[str, str]
    send_by: datetime
    expires_at: datetime


class UsageLine(Model):
    _names: ClassVar[dict[str, str]] = {"memory_gib_seconds": "memoryGiBSeconds"}
    group: str | None
    """The organization, project, pool, key, day or value of the label; null for what has no such label."""
    sandbox_seconds: float
    """Time for which sandboxes held quota."""
    cpu_seconds: float
    """The same, times the virtual CPUs that each asked for."""
    memory_gib_seconds: float
    kept_seconds: float
    """Time at rest, on pools that have a price for it."""
    estimated_cost: float | None
    """By the prices of the pool when counting began and the size that was asked for; null where the pool has none."""
    currency: str | None


class UsageReport(Model):
    from_: str
    to: str
    as_of: datetime
    """What still runs is counted until then."""
    group_by: str
    items: list[UsageLine]
    """A group has a line for each currency, and one without for what ran on pools whose costs are unknown."""
    next_cursor: str | None


class Verified(Model):
    pool: str
    verified: bool = True


class VerifyView(Model):
    org: str
    intact: bool
    """Whether every event from `fromSeq` up to `toSeq` is there and as it was sealed, and the chain goes on."""
    size: int
    """Events that are sealed."""
    root: str
    """Of the tree over them, in base64."""
    from_seq: int
    to_seq: int
    """The first event that was not looked at; go on with `fromSeq` of this until it is `size`."""
    problem: str | None


class Version(Model):
    version: str
    api: str = "v1"


class WebhookDetail(Model):
    id: str
    org: str
    project: str | None
    url: str
    events: list[str]
    description: str
    enabled: bool
    disabled: DisabledView | None
    secrets: int
    """How many sign: two while one is being replaced."""
    created_at: datetime
    created_by: str
    updated_at: datetime
    pending: int
    """Deliveries that are on their way or wait for another try."""
    failing_since: datetime | None
    """Since when the receiver has taken nothing."""
    resting_until: datetime | None
    """The receiver is down, or asked for it: nothing is sent before."""
    replay: ReplayView | None
    """The one that is under way."""


class WebhookView(Model):
    id: str
    org: str
    project: str | None
    url: str
    events: list[str]
    description: str
    enabled: bool
    disabled: DisabledView | None
    secrets: int
    """How many sign: two while one is being replaced."""
    created_at: datetime
    created_by: str
    updated_at: datetime
