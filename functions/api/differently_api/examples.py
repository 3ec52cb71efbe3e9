"""Examples for the OpenAPI document and the written reference; a test holds each to its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from differently_core.model.exec import ExecRequest, ExecResult, FileInfo, Job
from differently_core.operations.forking import ForkSandbox
from differently_core.operations.requests import CreateSandbox, Deletion, SandboxView, UpdateSandbox
from differently_core.operations.snapshots import SnapshotView, TakeSnapshot

from .routes.audit import AuditEvent
from .routes.budgets import PutBudget
from .routes.jobs import JobOutputView, StartJob
from .routes.keys import CreateKey, NewKeyView, RotatedKeyView, RotateKey
from .routes.policies import PutPolicy
from .routes.pools import CreatePool, ReconcileRequest, RepairPool, UpdatePool, UsePool
from .routes.ports import ExposedPort, ExposePort
from .routes.project_secrets import ProjectSecretView, PutProjectSecret
from .routes.secrets import PutSecret, SecretView
from .routes.templates import PutProfile, PutTemplate
from .routes.tenancy import CreateOrg, CreateProject, Quota, RepairQuota, RepairView, Suspend, UpdateOrg
from .routes.trust import TrustReport
from .routes.uploads import BeginUpload, UploadView
from .routes.usage import UsageReport
from .routes.webhooks import CreateWebhook, DeliveryView, NewWebhookView, ReplayEvents, RotateSecret, UpdateWebhook

SANDBOX = "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA"
SNAPSHOT = "snap_01JBM2ZQ7M0N4P6R8T1V3X5Z7B"
ORG = "org_01JBM2Y0G4S8N6P2Q7T3V5X9ZB"
PROJECT = "proj_01JBM2YB7H1K3M5R9S2W4Y6ZCD"
KEY = "key_01JBM2YPQ8A2C4E6G1J3K5M7NP"
NEXT_KEY = "key_01JBM3C2W5Y7A9D4F6H8K1N3QR"
WEBHOOK = "whk_01JBM3N5R7T9V1X3Z5B7D9F2H4"
EXAMPLE_REQUEST_ID = "5e7c1a52-1d1f-4c0e-9d39-9f6c2a7b0c11"
EVENT = "evt_01JBM2ZQ9A1B3C5D7E9F1G3H5J"
AT = "2026-11-02T09:30:00Z"
LATER = "2026-11-02T10:30:00Z"
HASH = "da9d13d9051699d2aec96780cf903a5868fa9a66099957c64b61b2eecb17163d"

PATH_EXAMPLES: Mapping[str, str] = {
    "id": SANDBOX, "job": "build-7", "org": ORG, "project": PROJECT, "key": KEY, "name": "eks-main", "scope": "global",
    "kind": "opensandbox", "port": "3000", "snapshot": SNAPSHOT, "event": EVENT, "webhook": WEBHOOK,
    "delivery": EVENT,
}  # fmt: skip

EXAMPLES: Mapping[type[BaseModel], dict[str, Any]] = {
    PutBudget: {"limit": 500, "currency": "USD", "thresholds": [50, 80, 100], "action": "stop"},
    TrustReport: {
        "asOf": AT,
        "pools": [
            {
                "pool": "eks-main", "adapter": "opensandbox", "trust": "private", "trustBy": "operator_declares",
                "isolation": {"value": "container", "known": "declared", "by": "configuration"},
                "region": "eu-central-1", "verification": "real server", "egressControl": True, "probedAt": AT,
                "healthy": True,
                "limitations": ["That it is private is what its operator declared; nothing here can prove it."],
                "endpoint": {"url": "https://sandboxes.internal.example"}, "credential": "secret:eks-main",
                "use": {"globalPolicy": True, "narrowed": {ORG: False}},
            }
        ],
    },
    UsageReport: {
        "from": "2026-11-01", "to": "2026-11-03", "asOf": AT, "groupBy": "label:team",
        "items": [
            {
                "group": "search", "sandboxSeconds": 7200.0, "cpuSeconds": 14400.0, "memoryGiBSeconds": 28800.0,
                "keptSeconds": 0.0, "estimatedCost": 0.248, "currency": "USD",
            }
        ],
    },
    CreateSandbox: {
        "template": "default",
        "resources": {"cpu": 2, "memoryMiB": 4096, "diskGiB": 10},
        "env": {"CI": "true"},
        "labels": {"run": "build-7"},
        "ttlSeconds": 3600,
    },
    ForkSandbox: {"labels": {"branch": "b"}, "ttlSeconds": 3600},
    UpdateSandbox: {"ttlSeconds": 7200},
    SandboxView: {
        "id": SANDBOX, "org": ORG, "project": PROJECT, "status": "running", "template": "default",
        "resources": {"cpu": 2, "memoryMiB": 4096, "diskGiB": 10}, "labels": {"run": "build-7"}, "pool": "eks-main",
        "ttlSeconds": 3600, "idleTimeoutSeconds": 600, "effective": {"ttlSeconds": 3600, "idleTimeoutSeconds": 600},
        "attempts": 1, "createdAt": AT, "createdBy": KEY, "startedAt": AT, "expiresAt": LATER,
    },
    Deletion: {"id": SANDBOX, "status": "terminating", "requestedAt": AT},
    ExecRequest: {"command": "echo $((6 * 7)); date >&2", "timeoutSeconds": 30},
    ExecResult: {
        "exitCode": 0, "stdout": "42\n", "stderr": "Mon Nov  2 09:30:00 UTC 2026\n", "durationMs": 12,
        "truncated": False, "stdoutDroppedBytes": 0, "stderrDroppedBytes": 0, "timedOut": False, "encoding": "utf-8",
    },
    StartJob: {"id": "build-7", "command": "make all", "timeoutSeconds": 3600},
    Job: {"id": "build-7", "state": "running", "startedAt": AT, "stdoutBytes": 1024, "stderrBytes": 0},
    JobOutputView: {"data": "cc -o main main.c\n", "next": 18, "ended": False},
    FileInfo: {
        "name": "a.txt", "path": "out/a.txt", "size": 5, "isDir": False, "mode": "0644", "modifiedAt": AT,
    },
    TakeSnapshot: {"name": "after the build", "retentionSeconds": 604800},
    SnapshotView: {
        "id": SNAPSHOT, "org": ORG, "project": PROJECT, "sandboxId": SANDBOX, "status": "ready", "kind": "disk",
        "name": "after the build", "sizeBytes": 734003200, "template": "default",
        "resources": {"cpu": 2, "memoryMiB": 4096, "diskGiB": 10}, "pool": "eks-main", "createdAt": AT,
        "createdBy": KEY, "readyAt": AT, "retainUntil": "2026-11-09T09:30:00Z",
    },
    BeginUpload: {"size": 52428800, "sha256": HASH},
    UploadView: {
        "id": "upl_01JBM3F4T6V8X0Z2B4D6F8H1K3", "method": "PUT",
        "url": "https://differently-staging.s3.eu-central-1.amazonaws.com/uploads/…?X-Amz-Signature=…",
        "headers": {"x-amz-checksum-sha256": "2p0T2QUWmdKuyWeAz5A6WGj6mmYJmVfGS2Gy7ssXFj0="},
        "sendBy": "2026-11-02T09:45:00Z", "expiresAt": LATER,
    },
    ExposePort: {"port": 3000, "ttlSeconds": 3600},
    ExposedPort: {"port": 3000, "url": "https://3000-7f3a.ports.example.com/", "expiresAt": LATER},
    CreateOrg: {"name": "Research", "weight": 1, "quota": {"maxConcurrent": 200}},
    UpdateOrg: {"weight": 3},
    CreateProject: {"name": "Agents"},
    AuditEvent: {
        "seq": 41, "hash": "ypq7Y3VkDmZPgCV3r1iFx2ZC1FcMKQbWb4oo3Y0vXjI=", "id": EVENT, "org": ORG,
        "at": "2026-11-02T09:30:00.000000Z", "actor": KEY, "requestId": EXAMPLE_REQUEST_ID, "action": "sandbox.create",
        "target": SANDBOX, "project": PROJECT, "pool": "eks-main", "after": "provisioning",
    },
    RepairQuota: {"dryRun": True},
    RepairPool: {"dryRun": True},
    RepairView: {
        "held": {
            "concurrent": 3, "cpu": 6.0, "memoryMiB": 12288, "diskGiB": 30, "snapshots": 2, "snapshotBytes": 734003200,
            "queued": 0,
        },
        "drift": {
            "concurrent": 0, "cpu": 0.0, "memoryMiB": 0, "diskGiB": 0, "snapshots": 0, "snapshotBytes": 0, "queued": 0,
        },
        "repaired": False,
    },
    Suspend: {"reason": "the invoice of October is open"},
    Quota: {"maxConcurrent": 50, "maxCPU": 100, "maxMemoryMiB": 204800, "maxTTLSeconds": 86400},
    CreateKey: {"name": "agents in staging", "scope": "tenant", "projectId": PROJECT},
    NewKeyView: {
        "id": KEY, "name": "agents in staging", "scope": "tenant", "org": ORG, "project": PROJECT, "createdAt": AT,
        "createdBy": KEY, "token": "dk_01JBM2YPQ8A2C4E6G1J3K5M7NP_…",
    },
    RotateKey: {"graceSeconds": 3600},
    RotatedKeyView: {
        "id": NEXT_KEY, "name": "agents in staging", "scope": "tenant", "org": ORG, "project": PROJECT,
        "createdAt": AT, "createdBy": KEY, "token": "dk_01JBM3C2W5Y7A9D4F6H8K1N3QR_…",
        "replaced": {
            "id": KEY, "name": "agents in staging", "scope": "tenant", "org": ORG, "project": PROJECT, "createdAt": AT,
            "createdBy": KEY, "expiresAt": LATER, "rotatedTo": NEXT_KEY,
        },
    },
    PutProjectSecret: {"value": "…at least eight bytes"},
    ProjectSecretView: {
        "name": "pypi-token", "version": 1, "createdAt": AT, "updatedAt": AT, "updatedBy": KEY,
    },
    PutSecret: {"fields": {"api_key": "…"}},
    SecretView: {
        "name": "opensandbox-eu", "version": 2, "fields": ["api_key"], "pools": 1, "createdAt": AT, "updatedAt": LATER,
        "updatedBy": KEY,
    },
    PutTemplate: {
        "images": {"eks-main": "registry.example.com/agents/python:3.13"}, "resources": {"cpu": 2, "memoryMiB": 2048},
    },
    PutProfile: {"description": "For test runs.", "defaults": {"ttlSeconds": 900, "resources": {"cpu": 4}}},
    PutPolicy: {
        "rules": {
            "external": "allowed", "externalPools": ["cloud"], "egress": {"deny": ["169.254.0.0/16"]},
            "classifications": {"confidential": {"external": "never"}},
        },
        "version": 1,
    },
    CreateWebhook: {"url": "https://hooks.example.com/differently", "events": ["sandbox.*"]},
    NewWebhookView: {
        "id": WEBHOOK, "org": ORG, "project": PROJECT, "url": "https://hooks.example.com/differently",
        "events": ["sandbox.*"], "description": "", "enabled": True, "secrets": 1, "createdAt": AT, "createdBy": KEY,
        "updatedAt": AT, "secret": "whsec_…",
    },
    UpdateWebhook: {"enabled": False},
    RotateSecret: {"graceSeconds": 3600},
    ReplayEvents: {"from": AT, "to": LATER},
    DeliveryView: {
        "id": EVENT, "type": "sandbox.ended", "subject": SANDBOX, "status": "pending", "tries": 1,
        "lastTry": {"at": AT, "status": 500, "failure": "error", "durationMs": 41}, "nextTryAt": LATER, "createdAt": AT,
    },
    UpdatePool: {"maxConcurrency": 40},
    UsePool: {"approveExternal": True},
    ReconcileRequest: {"pool": "local"},
    CreatePool: {"name": "local", "adapter": "devhost", "maxConcurrency": 10, "config": {"root": "/var/sandboxes"}},
}  # fmt: skip
