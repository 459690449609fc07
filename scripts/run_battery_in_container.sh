#!/usr/bin/env bash
# Run the battery of attacks inside a container like one that Docker starts without flags: Docker's default seccomp
# profile and capabilities, an unprivileged user, a read-only root. Needs root and runc (apt-get install runc).
#   scripts/run_battery_in_container.sh landlock [--cold] [--json] [--only ATTACK] ...
# PYTHON names the interpreter that the code runs in (default: the one of $VENV, .venv).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
python=${PYTHON:-$venv/bin/python}
command -v runc >/dev/null || { echo "runc is missing: apt-get install runc" >&2; exit 2; }
[ "$(id -u)" -eq 0 ] || { echo "run it as root: only root may start a container of another user" >&2; exit 2; }
[ "$(uname -m)" = x86_64 ] || { echo "docker_default.toml has the profile of x86-64 only" >&2; exit 2; }

bundle=$(mktemp -d)
name=hermod-battery-$$
trap 'runc delete --force "$name" 2>/dev/null || true; rm -rf "$bundle"' EXIT
chmod 755 "$bundle"
"$venv/bin/python" -m tests.sandbox.battery.container "$bundle" "$python" "$@"
runc run --bundle "$bundle" "$name" </dev/null
