"""An OCI bundle like a container that Docker starts without flags: its default profile, an unprivileged user.

The system's folders and an interpreter's are mounted read-only; nothing of the host is writable. See
https://github.com/opencontainers/runtime-spec/blob/main/config.md for the form.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.sandbox.battery.portable import copy_battery

USER = 10001
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives")
_ASK = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"
_PRIVATE = ["nosuid", "nodev", "noexec"]


def build_seccomp(facts: Mapping[str, object]) -> dict[str, object]:
    """Build Docker's profile in the runtime's form (x86-64)."""
    refused, personalities = facts["refused_families"], facts["personalities"]
    assert isinstance(refused, list)
    assert isinstance(personalities, list)
    low, high = sorted(refused)
    families = [("SCMP_CMP_LT", low), *(("SCMP_CMP_EQ", n) for n in range(low + 1, high)), ("SCMP_CMP_GT", high)]
    flags = {"index": 0, "value": facts["refused_clone_flags"], "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    rows = [
        _allow(str(facts["allowed"]).split()),
        *(_allow(["socket"], {"index": 0, "value": family, "op": op}) for op, family in families),
        *(_allow(["personality"], {"index": 0, "value": kind, "op": "SCMP_CMP_EQ"}) for kind in personalities),
        _allow(["clone"], flags),
        {"names": facts["not_there"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
    ]
    architectures = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]
    default = {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1}
    return {**default, "architectures": architectures, "syscalls": rows}


def _allow(names: Sequence[str], *arguments: Mapping[str, object]) -> dict[str, object]:
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(arguments)}


def build_config(facts: Mapping[str, object], arguments: Sequence[str], folders: Sequence[str]) -> dict[str, object]:
    """Build the container's configuration.

    Args:
        facts: of ``docker_default.toml``.
        arguments: the program that is run in ``/battery``.
        folders: of the host, to be mounted read-only under their own names.
    """
    # An unprivileged user has no capability; what is in the bounding set could come back by a file only.
    capabilities = {"bounding": facts["capabilities"], "effective": [], "permitted": [], "inheritable": []}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": USER, "gid": USER},
            "args": list(arguments),
            "env": ["PATH=/usr/bin:/bin", "PYTHONPATH=/battery", "LANG=C.UTF-8", "TMPDIR=/sandbox"],
            "cwd": "/battery",
            "capabilities": capabilities,
            "noNewPrivileges": False,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "container",
        "mounts": [*_system_mounts(), *(_bind(folder, folder) for folder in folders), _bind("battery", "/battery")],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "maskedPaths": facts["masked_paths"],
            "readonlyPaths": facts["readonly_paths"],
            "seccomp": build_seccomp(facts),
        },
    }


def _system_mounts() -> list[dict[str, object]]:
    def tmpfs(path: str, *options: str) -> dict[str, object]:
        return {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": [*_PRIVATE, *options]}

    return [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": _PRIVATE},
        {
            "destination": "/dev",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "strictatime", "mode=755", "size=65536k"],
        },
        tmpfs("/dev/shm", "mode=1777", "size=65536k"),
        {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": _PRIVATE},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*_PRIVATE, "ro"]},
        # As in the documented command line.
        tmpfs("/tmp", "mode=1777", "size=64m"),
        tmpfs("/sandbox", "mode=0700", "size=512m", "nr_inodes=20k", f"uid={USER}", f"gid={USER}"),
    ]


def _bind(source: str, target: str) -> dict[str, object]:
    return {"destination": target, "type": "bind", "source": source, "options": ["rbind", "ro", "nosuid", "nodev"]}


def make_bundle(folder: Path, python: str, arguments: Sequence[str]) -> None:
    """Make a bundle that runs the battery with an interpreter of this machine.

    Args:
        folder: empty; becomes the bundle.
        python: the interpreter.
        arguments: of the battery.
    """
    asked = subprocess.run([python, "-I", "-c", _ASK], capture_output=True, text=True, check=True)
    executable, *prefixes = json.loads(asked.stdout)
    folders = [path for path in _SYSTEM if Path(path).exists()]
    folders += [path for path in dict.fromkeys(prefixes) if not path.startswith("/usr")]
    (folder / "rootfs").mkdir()
    (folder / "battery").mkdir()
    copy_battery(folder / "battery")
    facts = tomllib.loads(Path(__file__).with_name("docker_default.toml").read_text(encoding="utf-8"))
    command = [executable, "-B", "-m", "tests.sandbox.battery", *arguments]
    config = build_config(facts, command, folders)
    for mount in config["mounts"] if isinstance(config["mounts"], list) else ():
        if mount["source"] == "battery":
            mount["source"] = str(folder / "battery")
    (folder / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    make_bundle(Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:])
