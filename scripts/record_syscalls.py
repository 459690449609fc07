"""Record the system calls of everyday programs, and tell which of them the sandbox's filter does not allow.

Run it as ``python -m scripts.record_syscalls [PYTHON ...]`` (needs strace); each interpreter named runs every program
below. It fails when a program made a call that is neither allowed nor refused on purpose, so that a new Python or numpy
is noticed here before its users notice it. What comes before the marker (the start of the interpreter) is not counted.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bot.tools.python_sandbox.child.seccomp import allowed_calls, answered_calls

MARKER = "/hermod-recording"

STANDARD = {
    "files": """
        import fcntl, gzip, mmap, os, pathlib, shutil, tarfile, tempfile, zipfile
        pathlib.Path("a.txt").write_text("x" * 100_000)
        shutil.copy2("a.txt", "b.txt"); os.replace("b.txt", "c.txt"); os.truncate("c.txt", 5)
        os.mkdir("kept"); shutil.copytree("kept", "copy"); shutil.move("c.txt", "copy"); shutil.rmtree("copy")
        os.link("a.txt", "d.txt"); os.remove("d.txt"); os.utime("a.txt"); os.chmod("a.txt", 0o600)
        zipfile.ZipFile("z.zip", "w").write("a.txt"); zipfile.ZipFile("z.zip").extractall("unpacked")
        with tarfile.open("t.tgz", "w:gz") as archive: archive.add("a.txt")
        with tarfile.open("t.tgz") as archive: archive.extractall("unpacked")
        with tempfile.TemporaryDirectory() as folder: open(folder + "/f", "w").write("1")
        with tempfile.NamedTemporaryFile() as file: file.write(b"1")
        assert list(os.walk(".")) and os.listdir(".") and list(os.scandir(".")) and os.path.realpath("a.txt")
        f = open("m", "w+b"); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[0] = 1; m.flush(); m.close()
        fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_UN); os.fsync(f.fileno()); f.close()
    """,
    "compression": """
        import bz2, gzip, lzma, zlib
        for module in (bz2, gzip, lzma, zlib): assert module.decompress(module.compress(b"x" * 999)) == b"x" * 999
    """,
    "csv": """
        import csv, io
        csv.writer(open("x.csv", "w")).writerows([["name", "ms"], ["慢查询", 12]])
        assert list(csv.DictReader(open("x.csv")))[0]["ms"] == "12"
    """,
    "json": """
        import json
        json.dump({"a": [1, None, "é"]}, open("x.json", "w")); assert json.load(open("x.json"))["a"][2] == "é"
    """,
    "text": """
        import base64, difflib, hashlib, hmac, html, re, secrets, string, struct, textwrap, unicodedata, uuid
        assert re.sub(r"\\d+", "?", "id = 12") == "id = ?"; hashlib.sha256(b"").hexdigest(); secrets.token_hex()
        uuid.uuid4(); uuid.uuid5(uuid.NAMESPACE_DNS, "x"); textwrap.fill("a b " * 99); list(difflib.ndiff("ab", "ac"))
    """,
    "numbers": """
        import collections, decimal, fractions, heapq, ipaddress, itertools, math, random, statistics
        assert statistics.quantiles(range(100), n=20) and decimal.Decimal("0.1") + 1 and fractions.Fraction(1, 3)
        random.seed(1); random.sample(range(99), 5); ipaddress.ip_network("10.0.0.0/8"); math.comb(9, 3)
    """,
    "time": """
        import calendar, datetime, time, zoneinfo
        assert datetime.datetime.now(zoneinfo.ZoneInfo("Asia/Shanghai")).utcoffset().seconds == 28800
        time.sleep(0.001); time.localtime(); time.tzset(); time.perf_counter(); time.process_time(); time.thread_time()
        time.clock_getres(time.CLOCK_MONOTONIC); calendar.month(2024, 2)
    """,
    "threads": """
        import concurrent.futures, queue, threading
        with concurrent.futures.ThreadPoolExecutor(8) as pool: assert sum(pool.map(lambda x: x * x, range(9))) == 204
        q = queue.Queue(); t = threading.Thread(target=lambda: q.put(1)); t.start(); q.get(timeout=20); t.join()
        threading.Timer(0.001, lambda: None).start()
    """,
    "asyncio": """
        import asyncio, os, selectors
        async def main():
            await asyncio.gather(*(asyncio.sleep(0.001) for _ in range(9)))
            return await asyncio.to_thread(len, "ab")
        assert asyncio.run(main()) == 2
        r, w = os.pipe()
        for kind in (selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector):
            with kind() as selector: selector.register(r, 1); selector.select(0.001)
    """,
    "sqlite": """
        import sqlite3
        for name in (":memory:", "x.db"):
            connection = sqlite3.connect(name)
            connection.execute("create table t(a)"); connection.execute("pragma journal_mode=wal")
            connection.executemany("insert into t values(?)", [(i,) for i in range(1000)]); connection.commit()
            assert connection.execute("select sum(a) from t").fetchone() == (499500,)
            connection.execute("delete from t"); connection.commit(); connection.execute("vacuum"); connection.close()
    """,
    "process": """
        import gc, getpass, locale, logging, os, platform, resource, signal, sys, time, tracemalloc, warnings
        signal.signal(signal.SIGALRM, lambda *a: None); signal.setitimer(signal.ITIMER_REAL, 0.001); time.sleep(0.01)
        signal.signal(signal.SIGUSR1, lambda *a: None); signal.raise_signal(signal.SIGUSR1)
        signal.pthread_sigmask(signal.SIG_BLOCK, []); resource.getrusage(resource.RUSAGE_SELF)
        resource.getrlimit(resource.RLIMIT_AS); os.getpid(); os.getppid(); os.getuid(); os.times(); os.uname()
        os.cpu_count(); os.sched_getaffinity(0); os.urandom(8); sys.stdin.read(); platform.python_version()
        logging.basicConfig(filename="log"); logging.error("x"); warnings.warn("y"); gc.collect()
    """,
    "ctypes": """
        import ctypes
        libc = ctypes.CDLL(None); values = (ctypes.c_int * 3)(3, 1, 2)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
        libc.qsort(values, 3, 4, kind(lambda a, b: a[0] - b[0])); assert list(values) == [1, 2, 3]
    """,
    "classes": """
        import abc, contextlib, copy, dataclasses, enum, functools, pickle, typing, xml.etree.ElementTree as x
        @dataclasses.dataclass(frozen=True)
        class Row: name: str = "a"
        assert dataclasses.replace(Row(), name="b") == Row("b"); x.fromstring("<a><b/></a>"); pickle.dumps([1])
    """,
}
NUMERIC = {
    "numpy": """
        import numpy as np
        a = np.random.default_rng(1).normal(size=(300, 300)); np.linalg.svd(a); np.linalg.eig(a); np.fft.fft(a); a @ a
        np.save("a.npy", a); np.load("a.npy", mmap_mode="r").sum(); np.savetxt("a.txt", a[:9]); np.loadtxt("a.txt")
        m = np.memmap("m", dtype="f8", mode="w+", shape=(100,)); m[:] = 1; m.flush()
        np.polyfit([1, 2, 3], [1, 4, 9], 2)
    """,
    "pandas": """
        import pandas as pd
        d = pd.DataFrame({"a": range(1000), "b": pd.date_range("2024", periods=1000, tz="Asia/Shanghai")})
        d.to_csv("d.csv", index=False); e = pd.read_csv("d.csv")
        e.describe(); e.groupby("a").size(); d.merge(d, on="a")
        d.set_index("b").resample("D").sum(); d.rolling(3, on="b").mean(); d.pivot_table(index="a"); print(d)
        d.to_json("d.json"); pd.read_json("d.json"); d.to_pickle("d.pkl"); pd.read_pickle("d.pkl")
    """,
    "plots": """
        import matplotlib.pyplot as plt
        plt.plot([1, 2], label="慢"); plt.bar([1, 2], [3, 4]); plt.title("慢查询"); plt.legend(); plt.xlabel("ms")
        for kind in ("png", "pdf", "svg"): plt.savefig("p." + kind)
        plt.close("all"); plt.hist(range(99)); plt.scatter([1], [2]); plt.savefig("q.png")
    """,
}
NOT_NEEDED = frozenset({"execve", "vfork", "fork", "socket", "connect", "mbind", "arch_prctl", "setsockopt", "statfs"})
"""Tried by some program, refused on purpose, and then done without: fonts are listed by a program, for one."""


def program(text: str) -> str:
    """Return a program without the indentation that it has here."""
    return "\n".join(line[8:] for line in text.strip("\n").splitlines())


def record(python: str, code: str, folder: Path) -> Counter[str]:
    """Run ``code`` under strace in ``folder`` and count its system calls after the marker."""
    log = folder / "strace.log"
    work = folder / "work"
    work.mkdir()
    (folder / "code.py").write_text(f"import os\nos.access({MARKER!r}, 0)\n{code}\n")
    environment = {"MPLCONFIGDIR": str(folder), "MPLBACKEND": "Agg", "HOME": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    command = ["strace", "-f", "-qq", "-o", str(log), python, "-I", "-B", str(folder / "code.py")]
    done = subprocess.run(
        command, cwd=work, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300
    )
    if done.returncode != 0:
        sys.exit(f"the program failed under {python}: {done.stderr.decode(errors='replace')[-800:]}")
    counted: Counter[str] = Counter()
    started = False
    for line in log.read_text(errors="replace").splitlines():
        found = re.match(r"\d+ +(\w+)\(", line)
        if found and started:
            counted[found[1]] += 1
        started = started or f'"{MARKER}"' in line
    return counted


def main(pythons: list[str]) -> int:
    """Record everything under each interpreter; 1 if a call is missing from the filter."""
    total: Counter[str] = Counter()
    missing: dict[str, set[str]] = {}
    known = allowed_calls() | answered_calls() | NOT_NEEDED
    for python in pythons:
        numeric = subprocess.run([python, "-I", "-c", "import matplotlib, pandas"], check=False, capture_output=True)
        for name, text in {**STANDARD, **(NUMERIC if numeric.returncode == 0 else {})}.items():
            with tempfile.TemporaryDirectory() as folder:
                counted = record(python, program(text), Path(folder))
            total.update(counted)
            for call in counted.keys() - known:
                missing.setdefault(call, set()).add(f"{name} ({python})")
    for call, count in sorted(total.items()):
        where = f"   NOT ALLOWED: {', '.join(sorted(missing[call]))}" if call in missing else ""
        print(f"{count:8} {call}{where}")  # noqa: T201
    print(f"{len(total)} calls seen, {len(known)} allowed, answered or known, {len(missing)} missing")  # noqa: T201
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
