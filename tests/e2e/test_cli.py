"""The command line as users have it, against a real `make run`."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from differently.cli.program import run
from tests.e2e.plane import Plane, until

Call = Callable[..., "Done"]


class Done:
    def __init__(self, code: int, out: bytes, err: str) -> None:
        self.code = code
        self.raw = out
        self.err = err

    @property
    def out(self) -> str:
        return self.raw.decode()

    def json(self) -> Any:
        return json.loads(self.raw)


@pytest.fixture
def here(plane: Plane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `make run` is running."""
    (tmp_path / ".differently").symlink_to(plane.data_dir)
    monkeypatch.chdir(tmp_path)
    for name in (
        "DIFFERENTLY_URL",
        "DIFFERENTLY_API_KEY",
        "DIFFERENTLY_LOGIN",
        "DIFFERENTLY_OUTPUT",
        "DIFFERENTLY_DATA_DIR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DIFFERENTLY_CONFIG", str(tmp_path / "logins.json"))
    return tmp_path


@pytest.fixture
def call(here: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    def made(*words: str) -> Done:
        code = run(list(words))
        sys.stdout.flush()
        sys.stderr.flush()
        told = capfdbinary.readouterr()
        return Done(code, told.out, told.err.decode())

    return made


@pytest.fixture
def sandbox(call: Call) -> Iterator[str]:
    made = call("sandbox", "create", "--label", "test=cli")
    assert made.code == 0, made.err
    yield made.out.strip()
    call("sandbox", "rm", made.out.strip())


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_a_list_is_a_list_also_when_it_is_empty(call: Call, format: str) -> None:
    """Fault 3: `-o json` of an empty list was null."""
    for words in (["sandbox", "list", "--status", "paused"], ["snapshot", "list"], ["queue"], ["logins"]):
        assert call(*words, "-o", format).out == "[]\n", words
    found = call("sandbox", "list", "--status", "paused")
    assert found.out.split() == ["ID", "STATUS", "POOL", "TEMPLATE", "AGE", "EXPIRES", "LABELS"]


def test_a_sandbox_is_listed_shown_changed_and_gone(call: Call, sandbox: str) -> None:
    listed = call("sandbox", "list", "--label", "test=cli", "-o", "json").json()
    assert sandbox in [entry["id"] for entry in listed]
    assert f"{sandbox}  running  devhost" in call("sandbox", "list").out
    assert "labels         test=cli" in call("sandbox", "get", sandbox).out
    assert call("sandbox", "update", sandbox, "--ttl", "90", "-o", "json").json()["ttlSeconds"] == 90
    assert call("sandbox", "stop", sandbox).out == "stopped\n"
    assert call("sandbox", "start", sandbox).out == "running\n"
    assert call("sandbox", "rm", "--wait", sandbox).out == f"{sandbox}\n"
    assert call("sandbox", "get", sandbox, "-o", "json").json()["status"] == "terminated"


def test_a_command_is_as_if_it_ran_here(call: Call, sandbox: str) -> None:
    done = call("sandbox", "exec", sandbox, "printf 'a\\377'; echo oops >&2; exit 7")
    assert (done.code, done.raw, done.err) == (7, b"a\xff", "oops\n")
    assert call("sandbox", "exec", sandbox, "--", "printf", "%s|", "-x", "a b").out == "-x|a b|"
    assert call("sandbox", "exec", "-e", "A=1", "--cwd", "/", sandbox, "echo $A; pwd").out == "1\n/\n"
    late = call("sandbox", "exec", "--timeout", "1", sandbox, "sleep 20")
    assert (late.code, late.err) == (124, "the command was ended after 1 s; give it longer with --timeout\n")
    assert call("sandbox", "exec", "--timeout", "300", sandbox, "echo as a job; exit 9").code == 9


def test_what_fails_around_a_command_is_125_and_no_exit_code_of_it(call: Call) -> None:
    done = call("sandbox", "exec", "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA", "true")
    assert done.code == 125
    assert "(not_found)" in done.err


def test_every_error_is_printed_with_what_to_do_next(call: Call) -> None:
    """Fault 7: errors that did not come from the API were swallowed."""
    done = call("sandbox", "get", "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA")
    assert (done.code, done.raw) == (1, b"")
    assert done.err.startswith("error: There is no sandbox")
    for part in ("(not_found)", "next: ", "request: req_"):
        assert part in done.err
    usage = call("sandbox", "create", "--memory", "much")
    assert usage.code == 2
    assert "next: differently sandbox create --help" in usage.err
    away = call("sandbox", "cp", "missing.txt", "sbx_01JBM2ZQ5KD3V9T7C8R1X4W6YA:x")
    assert away.code == 1
    assert "error: " in away.err
    nowhere = call("--login", "nobody", "sandbox", "list")
    assert (nowhere.code, "differently login nobody" in nowhere.err) == (2, True)


def test_a_server_that_is_not_there_is_told(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIFFERENTLY_API_KEY", "dk_x")
    done = call("--url", "http://127.0.0.1:1", "version")
    assert done.code == 3
    assert "cannot be reached" in done.err
    assert "dk_x" not in done.err


def test_files_go_in_and_out_byte_for_byte(
    call: Call, sandbox: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * (6 * 4096)
    (here / "in.bin").write_bytes(content)
    assert call("sandbox", "cp", "in.bin", f"{sandbox}:data/").code == 0
    assert "in.bin" in call("sandbox", "ls", sandbox, "data").out
    assert call("sandbox", "cp", f"{sandbox}:data/in.bin", "out.bin").code == 0
    assert (here / "out.bin").read_bytes() == content
    assert call("sandbox", "cp", f"{sandbox}:data/in.bin", "-").raw == content
    with (here / "in.bin").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert call("sandbox", "cp", "-", f"{sandbox}:data/piped.bin").code == 0
    assert call("sandbox", "cp", f"{sandbox}:data/piped.bin", "-").raw == content
    both = call("sandbox", "cp", "a", "b")
    assert (both.code, "ID:PATH" in both.err) == (2, True)


def test_jobs_outlive_the_call_that_started_them(call: Call, sandbox: str) -> None:
    started = call("job", "start", "--id", "mine", sandbox, "echo working; sleep 0.3; exit 4")
    assert started.out == "mine\n"
    logs = call("job", "logs", sandbox, "mine")
    assert (logs.out, logs.code) == ("working\n", 4)
    assert call("job", "get", sandbox, "mine", "-o", "json").json()["state"] == "exited"
    call("job", "start", "--id", "long", sandbox, "sleep 600")
    assert call("job", "stop", sandbox, "long").out == "stopped\n"


def test_one_command_makes_uses_and_ends_a_sandbox(call: Call) -> None:
    done = call("run", "--", "sh", "-c", "echo hello; exit 3")
    assert (done.out, done.code) == ("hello\n", 3)
    assert call("sandbox", "list", "-o", "json").json() == []


def test_where_one_would_go_is_explained(call: Call) -> None:
    assert call("explain").out.startswith("place: ")
    assert call("explain", "-o", "json").json()["decision"] == "place"
    assert call("capabilities", "-o", "json").json()[0]["name"] == "devhost"
    assert call("version", "-o", "json").json()["api"] == "v1"


def test_a_login_is_tried_kept_for_its_owner_alone_and_used(
    call: Call, plane: Plane, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, key = plane.access["url"], plane.access["tenantKey"]
    (here / ".differently").unlink()
    assert call("sandbox", "list").code == 2

    def with_key(text: str) -> Done:
        (here / "key").write_text(text)
        with (here / "key").open() as file:
            monkeypatch.setattr("sys.stdin", file)
            return call("login", "work", "--url", url, "--key-stdin")

    refused = with_key("dk_wrong\n")
    assert (refused.code, (here / "logins.json").exists()) == (1, False)
    assert "dk_wrong" not in refused.err
    assert with_key(f"{key}\n").code == 0
    assert stat.S_IMODE((here / "logins.json").stat().st_mode) == 0o600
    assert call("sandbox", "list", "-o", "json").code == 0
    listed = call("logins", "-o", "json")
    assert listed.json() == [{"name": "work", "url": url, "project": None, "current": True}]
    assert call("logout", "work", "--yes").out == "forgot work\n"


# What operators do


def fed(monkeypatch: pytest.MonkeyPatch, here: Path, text: str) -> Any:
    """Standard input that is no terminal."""
    (here / "input").write_text(text)
    file = (here / "input").open()
    monkeypatch.setattr("sys.stdin", file)
    return file


def test_a_pool_is_made_by_what_its_kind_says_of_itself(call: Call, here: Path) -> None:
    listed = call("pool", "kinds", "-o", "json").json()
    assert "devhost" in [entry["kind"] for entry in listed]
    shown = call("pool", "kinds", "devhost").out
    assert shown.startswith("devhost: ")
    assert "root" in shown
    missing = call("pool", "create", "second", "--kind", "devhost", "--max-concurrency", "3")
    assert (missing.code, "--set root=…" in missing.err) == (2, True)
    wrong = call("pool", "create", "second", "--kind", "devhost", "--max-concurrency", "3", "--set", "rot=x")
    assert (wrong.code, "there are: root" in wrong.err) == (2, True)
    (here / "root").mkdir()
    words = [
        "pool",
        "create",
        "second",
        "--kind",
        "devhost",
        "--max-concurrency",
        "3",
        "--set",
        f"root={here / 'root'}",
    ]
    assert call(*words, "--dry-run", "-o", "json").json()["name"] == "second"
    assert call(*words, "-o", "json").json()["config"]["root"] == str(here / "root")
    assert call("pool", "update", "second", "--max-concurrency", "4", "-o", "json").json()["maxConcurrency"] == 4
    assert call("pool", "drain", "second").out == "draining\n"
    assert call("pool", "undrain", "second").out == "active\n"
    assert call("pool", "verify", "second").out == "verified\n"
    assert "second" in [entry["name"] for entry in call("pool", "list", "-o", "json").json()]
    assert [entry["pool"] for entry in call("pool", "reconcile", "second", "-o", "json").json()] == ["second"]
    asked = call("pool", "rm", "second")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert call("pool", "rm", "second", "--yes").out == "second\n"


def test_tenants_their_quotas_and_keys(call: Call) -> None:
    org = call("org", "create", "research", "--weight", "2").out.strip()
    assert call("org", "update", org, "--name", "research 2", "-o", "json").json()["name"] == "research 2"
    project = call("project", "create", org, "agents").out.strip()
    assert [entry["id"] for entry in call("project", "list", org, "-o", "json").json()] == [project]
    changed = call("quota", "set", project, "maxConcurrent=7", "maxCPU=null", "-o", "json").json()
    assert (changed["limits"]["maxConcurrent"], changed["limits"]["maxCPU"]) == (7, None)
    assert "limit maxConcurrent" in call("quota", "get", project).out
    assert call("quota", "repair", org, "--dry-run", "-o", "json").json()["repaired"] is False
    assert call("quota", "set", project, "maxConcurrent=many").code == 2
    assert call("quota", "get", "sbx_1").code == 2
    made = call("key", "create", "staging", "--project", project)
    assert made.out.startswith("dk_")
    assert made.out.strip() not in made.err
    (key,) = call("key", "list", "--org", org, "-o", "json").json()
    assert call("key", "rotate", key["id"], "--grace", "0").out.startswith("dk_")
    assert call("key", "revoke", key["id"], "--yes").code == 0
    assert call("key", "create", "both").code == 2
    assert call("org", "suspend", org, "--reason", "invoice").out == "suspended\n"
    assert call("org", "unsuspend", org).out == "active\n"
    assert call("project", "archive", project, "--yes").out in ("archiving\n", "archived\n")
    assert call("org", "rm", org, "--yes").code == 0


def test_rules_and_what_sandboxes_start_from(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    org = call("org", "create", "rules").out.strip()
    (here / "rules.json").write_text('{"external": "never", "secretsInEnv": true}')
    assert call("policy", "set", org, "rules.json").json()["rules"]["secretsInEnv"] is True
    whole = call("policy", "get", org).json()
    whole["rules"]["secretsInEnv"] = False
    (here / "whole.json").write_text(json.dumps(whole))
    assert call("policy", "set", org, "whole.json", "--if-version", "1").json()["version"] == 2
    stale = call("policy", "set", org, "rules.json", "--if-version", "1")
    assert (stale.code, "(invalid_state)" in stale.err) == (1, True)
    assert org in [entry["scope"] for entry in call("policy", "list", "-o", "json").json()]
    assert call("policy", "rm", org, "--yes").out == f"{org}\n"
    (here / "bad.json").write_text("[]")
    assert call("policy", "set", org, "bad.json").code == 2
    assert call("template", "set", "small", "--memory", "64", "-o", "json").json()["resources"]["memoryMiB"] == 64
    assert call("template", "get", "small", "-o", "json").json()["version"] == 1
    assert "small" in call("template", "list").out
    (here / "defaults.json").write_text('{"ttlSeconds": 900}')
    assert call("profile", "set", "tests", "defaults.json").json()["defaults"]["ttlSeconds"] == 900
    assert call("profile", "rm", "tests", "--yes").code == 0
    assert call("template", "rm", "small", "--yes").code == 0
    with fed(monkeypatch, here, "a value of a secret\n"):
        kept = call("secret", "set", "token")
    assert (kept.code, "a value of a secret" in kept.out + kept.err) == (0, False)
    assert [entry["name"] for entry in call("secret", "list", "-o", "json").json()] == ["token"]
    assert call("secret", "rm", "token", "--yes").code == 0
    with fed(monkeypatch, here, "first\nsecond\n"):
        kept = call("credential", "set", "vendor", "api_key", "team", "-o", "json")
    assert kept.json()["fields"] == ["api_key", "team"]
    with fed(monkeypatch, here, ""):
        assert call("credential", "set", "vendor", "api_key").code == 2
    assert call("credential", "rm", "vendor", "--yes").code == 0
    call("org", "rm", org, "--yes")


def test_what_is_used_known_and_may_be_spent(call: Call, sandbox: str) -> None:
    (line,) = call("usage", "-o", "json").json()
    assert line["sandboxSeconds"] > 0
    assert call("usage", "--by", "day", "--all").out.startswith("GROUP")
    assert call("usage", "--by", "moon").code == 1
    assert [pool["pool"] for pool in call("trust", "-o", "json").json()["pools"]] == ["devhost"]
    assert "devhost" in call("trust", "--all").out
    org = call("org", "create", "thrifty").out.strip()
    words = ["budget", "set", org, "12.5", "--action", "queue", "--at", "50", "--at", "90", "-o", "json"]
    told = call(*words).json()
    assert (told["limit"], told["action"], told["thresholds"]) == (12.5, "queue", [50, 90])
    assert "12.5" in call("budget", "get", org).out
    assert call("budget", "rm", org, "--yes").out == f"{org}\n"
    assert call("budget", "get", org).code == 1
    call("org", "rm", org, "--yes")


def test_the_log_is_listed_checked_and_exported(call: Call, sandbox: str, here: Path) -> None:
    until(lambda: call("audit", "list", "--target", sandbox, "-o", "json").json(), "sealed events of the sandbox")
    actions = {entry["action"] for entry in call("audit", "list", "--target", sandbox, "-o", "json").json()}
    assert any(action.startswith("sandbox.") for action in actions)
    assert len(call("audit", "list", "--limit", "2", "--newest-first", "-o", "json").json()) == 2
    assert len(call("audit", "list", "--all", "--limit", "1").out.splitlines()) == 2
    assert call("audit", "list", "--target", "sbx_none", "-o", "json").json() == []
    checked = call("audit", "verify", "-o", "json").json()
    assert checked["intact"] is True
    assert call("audit", "export", "events.ndjson").code == 0
    (here / "root.txt").write_text(f"{checked['org']}\n{checked['size']}\n{checked['root']}\n")
    verifier = Path(__file__).parents[2] / "clients" / "verifier" / "verify_audit.py"
    done = subprocess.run([sys.executable, verifier, "--root", "root.txt", "events.ndjson"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert call("audit", "export", "-").raw.splitlines()[-1].startswith(b'{"export":')


def test_webhooks_are_made_tried_and_sent_again(call: Call, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "http://127.0.0.1:9/hook?key=given"
    with fed(monkeypatch, here, f"{url}\n"):
        made = call("webhook", "create", "-", "--event", "sandbox.*", "--description", "to the team")
    assert made.out.startswith("whsec_")
    assert made.out.strip() not in made.err
    assert "only time" in made.err
    (hook,) = call("webhook", "list", "-o", "json").json()
    assert (hook["url"], hook["events"], hook["description"]) == (url, ["sandbox.*"], "to the team")
    rotated = call("webhook", "rotate", hook["id"], "--grace", "60", "-o", "json").json()
    assert rotated["secret"].startswith("whsec_")
    shown = call("webhook", "get", hook["id"]).out + call("webhook", "list").out
    assert "whsec_" not in shown
    event = call("webhook", "test", hook["id"]).out.strip()
    sent = call("webhook", "deliveries", hook["id"], "-o", "json").json()
    # Other tests use the same project, and their sandboxes end meanwhile.
    assert [entry["id"] for entry in sent if entry["type"] == "webhook.test"] == [event]
    assert call("webhook", "redeliver", hook["id"], event).out == f"{event}\n"
    assert call("webhook", "replay", hook["id"], "--from", hook["createdAt"], "-o", "json").json()["offered"] >= 0
    assert call("webhook", "update", hook["id"], "--disable", "-o", "json").json()["enabled"] is False
    with fed(monkeypatch, here, ""):
        asked = call("webhook", "rm", hook["id"])
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert call("webhook", "rm", hook["id"], "--yes").out == f"{hook['id']}\n"
    own = call("webhook", "create", url, "--operator", "-o", "json").json()
    assert [entry["id"] for entry in call("webhook", "list", "--operator", "-o", "json").json()] == [own["id"]]
    assert call("webhook", "list", "-o", "json").out == "[]\n"
    assert call("webhook", "rm", own["id"], "--operator", "--yes").code == 0


def program(here: Path, *words: str) -> list[str]:
    return [sys.executable, "-c", "from differently.cli import main; main()", *words]


def test_input_is_piped_and_a_reader_who_has_enough_is_no_error(here: Path, call: Call, sandbox: str) -> None:
    fed = subprocess.run(
        program(here, "sandbox", "exec", "-i", sandbox, "wc -c"), input=b"\xff\0" * 700_000, capture_output=True
    )
    assert (fed.returncode, fed.stdout.strip(), fed.stderr) == (0, b"1400000", b"")
    listed = subprocess.run(
        f"{sys.executable} -c 'from differently.cli import main; main()' sandbox get {sandbox} -o json | head -c 1",
        shell=True, capture_output=True,
    )  # fmt: skip
    assert (listed.stdout, listed.stderr) == (b"{", b"")


@pytest.mark.parametrize(("seconds", "told"), [("60", b"may run on in sbx_"), ("600", b"is stopped")])
def test_an_interrupt_says_what_becomes_of_the_command(
    here: Path, call: Call, sandbox: str, seconds: str, told: bytes
) -> None:
    process = subprocess.Popen(
        program(here, "sandbox", "exec", "--timeout", seconds, sandbox, "echo begun; sleep 30"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told in err


def test_a_terminal_gets_colour_and_a_pipe_does_not(here: Path, call: Call, sandbox: str) -> None:
    assert "\x1b" not in call("sandbox", "list").out
    leader, follower = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        program(here, "sandbox", "list"), stdout=follower, stderr=follower, env={**environment, "TERM": "xterm"}
    )
    assert process.wait(60) == 0
    os.close(follower)
    written = _drained(leader)
    assert sandbox.encode() in written
    assert b"\x1b[32mrunning" in written


def _drained(leader: int) -> bytes:
    found = b""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            piece = os.read(leader, 65_536)
        except OSError:
            break
        if not piece:
            break
        found += piece
    os.close(leader)
    return found


def test_without_its_extra_the_program_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from differently.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "differently-sandbox[cli]" in done.stderr
