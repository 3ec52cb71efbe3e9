#!/bin/sh
# Makes the Python environments that a make target needs, and nothing when they are there already.
#
#   scripts/bootstrap.sh tools    .venv-tools    uv, which installs the others
#   scripts/bootstrap.sh run      .venv          what the control plane runs on, and the command line that users install
#                                 .venv-emulator the embedded AWS, which pins its own AWS SDK
#   scripts/bootstrap.sh dev      .venv          the same environment, grown by test, lint and CDK packages
#                                 .venv-emulator
#   scripts/bootstrap.sh sdks     .venv-opensandbox         vendors' clients, one environment each, for tests against
#                                 .venv-e2b                 our stand-ins
#                                 .venv-daytona
#   scripts/bootstrap.sh servers  .venv-opensandbox-server  a vendor's server, for tests of our adapter
#   scripts/bootstrap.sh cdk      infra/cli/node_modules    the CDK's command line, which deploys (after dev: it brings Node)
#
# An environment counts as made when its stamp names the checksum of what went into it. The stamp goes first and comes
# back last, so an interrupted run is repaired by the next. One run at a time works (the kernel drops the lock when its
# holders are gone, killed ones too); the others wait and then find nothing to do.
# PYTHON=/path/to/python chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."

goal=${1:?usage: scripts/bootstrap.sh tools|run|dev|sdks|servers|cdk}

fail() {
    echo >&2
    for line in "$@"; do echo "bootstrap: $line" >&2; done
    exit 1
}

# --- what must be true ----------------------------------------------------------------------------------------------

tools_inputs="requirements/tools.txt"
emulator_inputs="requirements/emulator.txt"
run_inputs="requirements/runtime.txt requirements/build.txt requirements/client.txt pyproject.toml clients/python/pyproject.toml"
dev_inputs="requirements/dev.txt pyproject.toml clients/python/pyproject.toml"
sdks="opensandbox e2b daytona"  # each has its lock in requirements/NAME-sdk.txt and lives in .venv-NAME
server_inputs="requirements/opensandbox-server.txt"
cdk_inputs="infra/cli/package-lock.json"

# The first half of a pyproject.toml says what is installed; the second, from [tool.ruff] on, only configures tools.
key() {
    for input in "$@"; do
        case $input in
            *pyproject.toml) sed '/^\[tool\.ruff\]/,$d' "$input" ;;
            *) cat "$input" ;;
        esac
    done | cksum
}

# current VENV STAMP INPUT...: the environment works and was made from exactly these inputs.
current() {
    venv=$1 stamp=$1/.made-$2
    shift 2
    [ -f "$stamp" ] && [ -x "$venv/bin/python" ] || return 1
    [ "$(cat "$stamp")" = "$(key "$@")" ] || return 1
    [ -z "${PYTHON:-}" ] || [ "$(cat "$venv/.interpreter" 2>/dev/null)" = "$(version_of "$PYTHON")" ]
}

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

tools_current() { current .venv-tools tools $tools_inputs; }
emulator_current() { current .venv-emulator emulator $emulator_inputs; }
sdks_current() {
    for sdk in $sdks; do current ".venv-$sdk" sdk "requirements/$sdk-sdk.txt" || return 1; done
}
servers_current() { current .venv-opensandbox-server server $server_inputs; }
cdk_current() {
    stamp=infra/cli/node_modules/.made
    [ -f "$stamp" ] && [ -x infra/cli/node_modules/.bin/cdk ] && [ "$(cat "$stamp")" = "$(key $cdk_inputs)" ]
}
dev_current() { current .venv dev $dev_inputs; }
# An environment grown for development runs the control plane as well: both locks hold the same pins.
run_current() { current .venv run $run_inputs || dev_current; }

all_current() {
    case $goal in
        tools) tools_current ;;
        run) run_current && emulator_current ;;
        dev) dev_current && emulator_current ;;
        sdks) sdks_current ;;
        servers) servers_current ;;
        cdk) cdk_current ;;
        *) fail "no goal '$goal'; know tools, run, dev, sdks, servers and cdk" ;;
    esac
}

if all_current; then exit 0; fi

# --- an interpreter -------------------------------------------------------------------------------------------------

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        suits "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer that starts."
        echo "$PYTHON"
        return
    fi
    for candidate in python3.11 python3.12 python3.13 python3.14 python3; do
        if suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer is missing (looked for python3.11 to python3.14 and python3 on PATH)." \
        "Debian, Ubuntu:  apt-get install python3 python3-venv" \
        "Fedora:          dnf install python3" \
        "macOS:           brew install python@3.13" \
        "An interpreter elsewhere: make PYTHON=/path/to/python3 ..."
}

python=$(find_python)

if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    fail "$python has no venv module (Debian and Ubuntu ship it apart)." \
        "Bring it with:  apt-get install python3-venv      (or python$version-venv, to go with this interpreter)"
fi

# --- one at a time --------------------------------------------------------------------------------------------------

# The lock is an open descriptor that every child inherits: it is free when the last of them is gone.
if [ -z "${DIFFERENTLY_BOOTSTRAP_LOCKED:-}" ]; then
    DIFFERENTLY_BOOTSTRAP_LOCKED=1 exec "$python" - "$0" "$@" <<'PY'
import fcntl, os, sys

lock = os.open(".venv.lock", os.O_CREAT | os.O_RDWR, 0o644)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("bootstrap: another one is at work, waiting for it", file=sys.stderr)
    fcntl.flock(lock, fcntl.LOCK_EX)
os.set_inheritable(lock, True)
os.execv("/bin/sh", ["sh", "scripts/bootstrap.sh", *sys.argv[2:]])
PY
fi
if all_current; then exit 0; fi

# --- making them ----------------------------------------------------------------------------------------------------

# What an outer shell set up for another project must not leak into ours.
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH UV_PROJECT_ENVIRONMENT UV_PYTHON CONDA_PREFIX || true
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 PIP_DISABLE_PIP_VERSION_CHECK=1

uv=.venv-tools/bin/uv

no_packages() {
    fail "the packages of $1 could not be installed; the lines above say why." \
        "Without a network this cannot work the first time. Behind a mirror, name it to both installers:" \
        "    export PIP_INDEX_URL=<mirror> UV_DEFAULT_INDEX=<mirror>" \
        "and where the mirror's certificate is the system's: export UV_SYSTEM_CERTS=1" \
        "Then run the same command again: it goes on from here."
}

# begin VENV: keep it when it is whole, else remove it. A whole one has `.interpreter`, which is written at the end; one
# that is being changed in place has `.unfinished` meanwhile.
begin() {
    fresh=no
    if [ -e "$1/.unfinished" ] || [ ! -f "$1/.interpreter" ] || ! "$1/bin/python" -c '' >/dev/null 2>&1 ||
        { [ -n "${PYTHON:-}" ] && [ "$(cat "$1/.interpreter")" != "$(version_of "$PYTHON")" ]; }; then
        rm -rf "$1"
        fresh=yes
    else
        : >"$1/.unfinished"
        rm -f "$1"/.made-*
    fi
}

done_making() {  # done_making VENV STAMP INPUT...
    venv=$1 stamp=$1/.made-$2
    shift 2
    version_of "$venv/bin/python" >"$venv/.interpreter"
    key "$@" >"$stamp.new"
    rm -f "$venv/.unfinished"
    mv "$stamp.new" "$stamp"
}

make_tools() {
    tools_current && return
    echo "bootstrap: .venv-tools ($python)" >&2
    begin .venv-tools
    [ $fresh = no ] || "$python" -m venv .venv-tools || fail "$python -m venv failed; the lines above say why."
    .venv-tools/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/tools.txt ||
        no_packages requirements/tools.txt
    done_making .venv-tools tools $tools_inputs
}

fresh_venv() {
    [ $fresh = no ] || "$uv" venv --quiet --no-project --python "$python" "$1" ||
        fail "uv could not make $1; the lines above say why."
}

# make_apart VENV STAMP LOCK: an environment of somebody else's packages and nothing of ours.
make_apart() {
    current "$1" "$2" "$3" && return
    echo "bootstrap: $1" >&2
    begin "$1"
    fresh_venv "$1"
    "$uv" pip sync --quiet --require-hashes --python "$1/bin/python" "$3" || no_packages "$3"
    done_making "$1" "$2" "$3"
}

make_emulator() { make_apart .venv-emulator emulator $emulator_inputs; }

make_main() {  # make_main STAMP LOCK...
    stamp_name=$1
    shift
    echo "bootstrap: .venv ($stamp_name)" >&2
    begin .venv
    fresh_venv .venv
    "$uv" pip sync --quiet --require-hashes --python .venv/bin/python "$@" || no_packages "$*"
    "$uv" pip install --quiet --no-deps --no-build-isolation --python .venv/bin/python \
        --editable . --editable clients/python ||
        fail "the project itself could not be installed; the lines above say why."
}

make_tools
case $goal in
    run)
        if ! run_current; then
            make_main run requirements/runtime.txt requirements/build.txt requirements/client.txt
            done_making .venv run $run_inputs
        fi
        make_emulator
        ;;
    dev)
        if ! dev_current; then
            make_main dev requirements/dev.txt
            done_making .venv dev $dev_inputs
        fi
        make_emulator
        ;;
    sdks) for sdk in $sdks; do make_apart ".venv-$sdk" sdk "requirements/$sdk-sdk.txt"; done ;;
    cdk)
        echo "bootstrap: infra/cli/node_modules" >&2
        npm=.venv/bin/npm
        [ -x "$npm" ] || npm=npm
        # The lock holds the checksum of every file and no address.
        "$npm" ci --prefix infra/cli --omit=optional --no-audit --no-fund --loglevel=error >&2 ||
            no_packages infra/cli/package-lock.json
        key $cdk_inputs >infra/cli/node_modules/.made
        ;;
    servers) make_apart .venv-opensandbox-server server $server_inputs ;;
esac
