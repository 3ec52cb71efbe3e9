#!/bin/sh
# Writes requirements/*.txt from pyproject.toml: pins and hashes of every file of a release, for every platform and
# every supported Python, and no addresses. Pins that still fit stay; `UPGRADE=1 make lock` takes the newest.
set -eu
cd "$(dirname "$0")/.."

uv=.venv-tools/bin/uv
# A lock must not depend on who makes it: no user configuration, no extra sources.
unset UV_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_CONSTRAINT UV_OVERRIDE UV_PRERELEASE UV_EXCLUDE_NEWER || true
export UV_NO_CONFIG=1 UV_PYTHON_DOWNLOADS=never

compile() {  # compile NAME SOURCE...: writes requirements/NAME.txt
    name=$1
    shift
    echo "locking requirements/$name.txt"
    $uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links ${UPGRADE:+--upgrade} -o "requirements/$name.txt" "$@"
}

# `dev` is solved first and is a superset; the smaller ones take its pins, so one environment can grow into it.
compile dev pyproject.toml clients/python/pyproject.toml --extra cli --group build --group dev --group infra
compile runtime pyproject.toml --constraints requirements/dev.txt
compile build --group build --constraints requirements/dev.txt
compile client clients/python/pyproject.toml --extra cli --constraints requirements/dev.txt
compile tools --group tools
compile emulator --group emulator
compile opensandbox-sdk --group opensandbox-sdk
compile e2b-sdk --group e2b-sdk
compile daytona-sdk --group daytona-sdk
compile opensandbox-server --group opensandbox-server

if grep -nvE '^[a-z0-9._-]+==[^ ]+( ; [^/]+)? \\$|^    --hash=sha256:[0-9a-f]{64}( \\)?$' requirements/*.txt; then
    echo "lock: the lines above name an address, an option or a path; a lock holds only pins and hashes" >&2
    exit 1
fi
