#!/bin/sh
# Make the environment in $VENV (default .venv) and install Hermod for development into it, with the extras of
# $EXTRAS (default dev; "dev,services" adds the cache servers that some tests need).
# Usage: scripts/setup.sh      (make calls it; see README.md for the same steps by hand)
set -eu
cd "$(dirname "$0")/.."
VENV=${VENV:-.venv}
PYTHON=${PYTHON:-python3}

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

if command -v uv >/dev/null 2>&1; then
    if is_new_enough "$PYTHON"; then wanted=$PYTHON; else wanted='>=3.11'; fi
    [ -x "$VENV/bin/python" ] || uv venv --quiet --python "$wanted" "$VENV"
    uv pip install --quiet --python "$VENV/bin/python" -c constraints.txt -e ".[${EXTRAS:-dev}]"
    exit 0
fi

if ! [ -x "$VENV/bin/pip" ]; then
    command -v "$PYTHON" >/dev/null 2>&1 ||
        fail "$PYTHON is missing; install it: apt-get install python3 python3-venv"
    is_new_enough "$PYTHON" ||
        fail "$PYTHON is older than 3.11; install a newer one (Debian 12 and later: apt-get install python3 python3-venv) and name it: make PYTHON=python3.12"
    "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "Python's venv module is missing; install it: apt-get install python3-venv"
    "$PYTHON" -m venv --clear "$VENV"
fi
"$VENV/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e ".[${EXTRAS:-dev}]"
