#!/bin/sh
# Write constraints.txt: the newest versions that fit pyproject.toml, for development, the servers of the tests and
# every extra.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

"$PYTHON" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check '.[dev,all,services]'
{
    echo "# Versions that the tests ran with. Written by scripts/make_constraints.sh (make constraints)."
    "$work/venv/bin/pip" freeze --disable-pip-version-check | grep -v -i -e '^hermod-bot' -e '^-e ' | LC_ALL=C sort -f
} >"$work/constraints.txt"
if grep -n '://' "$work/constraints.txt"; then
    echo "make_constraints: an address instead of a version; nothing was written" >&2
    exit 1
fi
mv "$work/constraints.txt" constraints.txt
