"""``hermod slowlog`` as a person runs it: output, exit codes, pipes, memory."""

from __future__ import annotations

import csv
import gzip
import os
import pty
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli.command import build_environ, hermod
from tests.unit.slow_logs.logs import my, timed

LOG = timed("select * from orders where id = 5", 250) * 3 + timed("select count(*) from t where a = 's3cr3t'", 1_500)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "postgresql.log"
    path.write_text(LOG)
    return path


def test_a_log_is_summed_up_as_a_table(log: Path) -> None:
    done = hermod(log.parent, "slowlog", "postgresql.log")
    assert done.code == 0, done.err
    assert re.search(r"750\.00 ms\s+3\s+250\.00 ms .* select \* from orders where id = \$1", done.out)
    assert "s3cr3t" not in done.out + done.err


def test_the_answer_as_json_is_the_tools_envelope(log: Path) -> None:
    done = hermod(log.parent, "slowlog", "postgresql.log", "--json", "--order-by", "calls", "--limit", "1")
    assert done.code == 0, done.err
    assert {
        "schema",
        "ok",
        "engine",
        "source",
        "window",
        "coverage",
        "rows",
        "truncated",
        "warnings",
    } <= done.data.keys()
    rows = done.data["rows"]
    assert isinstance(rows, list)
    assert [(row["calls"], row["duration"]) for row in rows] == [(3, 0.25)]
    assert done.data["truncated"] == {"rows": 1, "cancelled": 0}


def test_every_shape_goes_into_the_csv_file(log: Path) -> None:
    done = hermod(log.parent, "slowlog", "postgresql.log", "--csv", "out.csv", "--limit", "1")
    assert done.code == 0, done.err
    with (log.parent / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["sql"], row["calls"]) for row in rows] == [
        ("select count(*) from t where a = $1", "1"),
        ("select * from orders where id = $1", "3"),
    ]


def test_standard_input_and_rotated_gzip_files_are_read(tmp_path: Path) -> None:
    assert '"calls": 2' in hermod(tmp_path, "slowlog", "-", "--json", stdin=my("select 1") * 2).out
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "slow.log").write_text(my("select 1", time="2026-05-02T10:00:00Z"))
    (folder / "slow.log.1.gz").write_bytes(gzip.compress(my("select 1").encode()))
    done = hermod(tmp_path, "slowlog", "logs", "--json")
    files = done.data["files"]
    assert isinstance(files, list)
    assert [file["name"] for file in files] == ["logs/slow.log.1.gz", "logs/slow.log"]


def test_exit_codes_tell_whole_damaged_and_unreadable_logs_apart(log: Path) -> None:
    (log.parent / "damaged.log").write_text(LOG + "garbage\n" + LOG)
    damaged = hermod(log.parent, "slowlog", "damaged.log")
    assert damaged.code == 3
    assert "damaged.log line 5" in damaged.out
    (log.parent / "diary.txt").write_text("dear diary s3cr3t\n")
    unknown = hermod(log.parent, "slowlog", "diary.txt", "--json")
    assert unknown.code == 1
    error = unknown.data["error"]
    assert isinstance(error, dict)
    assert error["code"] == "log_format_unknown"
    assert "s3cr3t" not in unknown.out + unknown.err
    missing = hermod(log.parent, "slowlog", "nowhere.log")
    assert (missing.code, missing.err) == (1, "hermod: nowhere.log: No such file or directory\n")
    assert hermod(log.parent, "slowlog", "postgresql.log", "--format", "xml").code == 2
    naive = hermod(log.parent, "slowlog", "postgresql.log", "--since", "2026-05-01T10:00:00")
    assert naive.code == 1
    assert "zone" in naive.err


def test_a_terminal_sees_a_bar_that_is_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "big.log").write_text(LOG * 30_000)
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bot", "slowlog", "big.log", "--json"],
            cwd=tmp_path, env=build_environ(), stdout=subprocess.PIPE, stderr=theirs, timeout=100, check=False,
        )  # fmt: skip
        os.set_blocking(ours, False)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    assert re.search(r"\[#*\.*\] +\d+%  [\d,]+ lines", shown)
    assert shown.endswith("\r\x1b[K")


def test_d32_memory_stays_bounded_whatever_the_log_holds(tmp_path: Path) -> None:
    path = tmp_path / "many.log"
    with path.open("w") as stream:
        for number in range(60_000):  # every tenth statement is a shape of its own
            stream.write(timed(f"select c{number % 6_000} from t{number // 10} where a = {number}", 5))
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = hermod(tmp_path, "slowlog", "many.log", "--json", timeout_s=110)
    assert done.code == 0, done.err
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert peak == before or peak < 80 * 1024  # KiB; 60,000 shapes would need more than twice that
    assert "were summed up together" in done.out
