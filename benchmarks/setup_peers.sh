#!/bin/sh
# Make the environment of the benchmarks' peers in $BENCH_VENV (default .venv-bench), once for each benchmarks/requirements.txt.
# Never fails: where they cannot be installed, the benchmarks run without them and say so.
set -u
cd "$(dirname "$0")/.."
VENV=${BENCH_VENV:-.venv-bench}
PYTHON=${PYTHON:-python3}
STAMP=$VENV/.hermod-installed

[ -n "$(find "$STAMP" -newer benchmarks/requirements.txt 2>/dev/null)" ] && exit 0
if command -v uv >/dev/null 2>&1; then
    { [ -x "$VENV/bin/python" ] || uv venv --quiet --python "$PYTHON" "$VENV"; } &&
        uv pip install --quiet --python "$VENV/bin/python" -r benchmarks/requirements.txt
else
    { [ -x "$VENV/bin/pip" ] || "$PYTHON" -m venv --clear "$VENV"; } &&
        "$VENV/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 -r benchmarks/requirements.txt
fi && touch "$STAMP" && exit 0
echo "bench: the peers (benchmarks/requirements.txt) could not be installed into $VENV; they are left out" >&2
