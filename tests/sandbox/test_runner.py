"""Programs that run elsewhere: the real client, the real service, the real backends behind it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from bot.settings_tree import SandboxSettings
from bot.tools.python_sandbox.choose import open_sandbox as choose_sandbox
from bot.tools.python_sandbox.host_backend import HostBackend
from bot.tools.python_sandbox.interpreter import find_interpreter
from bot.tools.python_sandbox.runner_backend import RunnerBackend, RunnerPatience
from bot.tools.python_sandbox.runner_folders import RunFolders
from bot.tools.python_sandbox.runner_limits import NotStarted
from bot.tools.python_sandbox.runner_server import RunnerServer
from bot.tools.python_sandbox.types import KiB, RunStatus, SandboxLimits, SandboxRun, SandboxUnavailable
from tests.sandbox.runners import CEILINGS, TOKEN, build_program, open_runner
from tests.sandbox.sandboxes import NAME_ITSELF, UNTIL_TOLD, OpenSandbox, Sandbox, find_named, tell, until

# -- files -----------------------------------------------------------------------------------------


async def test_a_program_reads_its_input_and_its_files_come_back(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder(data="1,2\n3,4\n")
        code = (
            "import csv\n"
            "rows = list(csv.reader(open('input/data')))\n"
            "open('output/sum.txt', 'w').write(str(sum(int(cell) for row in rows for cell in row)))\n"
            "open('output/é.bin', 'wb').write(bytes(range(256)) * 4096)\n"
            "print('done')\n"
        )
        outcome = await runner.run(code, folder=folder)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (RunStatus.OK, "done\n", "")
    assert (outcome.detail, outcome.exit_code, outcome.state) == ("", 0, "fresh")
    assert outcome.duration_s > 0
    assert (folder / "output/sum.txt").read_text() == "10"
    assert (folder / "output/é.bin").read_bytes() == bytes(range(256)) * 4096
    assert (folder / "input/data").read_text() == "1,2\n3,4\n"


async def test_files_of_an_earlier_run_are_there_and_removed_ones_are_removed(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder()
        await runner.run("open('output/a', 'w').write('1'); open('output/b', 'w').write('2')", folder=folder)
        same = (folder / "output/a").stat().st_ino
        outcome = await runner.run("import os\nprint(open('output/a').read())\nos.remove('output/b')", folder=folder)
        assert (outcome.stdout, outcome.stderr) == ("1\n", "")
        assert os.listdir(folder / "output") == ["a"]
        assert (folder / "output/a").stat().st_ino == same, "an unchanged file is not sent again"
        await runner.run("open('output/a', 'a').write('0')", folder=folder)
    assert (folder / "output/a").read_text() == "10"


async def test_names_that_people_cannot_read_are_cleaned_and_other_things_are_counted(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder()
        code = (
            "import os\n"
            "open('output/a\\u202egnp.exe', 'w').write('1')\n"
            "open(b'output/\\xff\\xfe', 'w').write('2')\n"
            "open('output/line\\nbreak', 'w').write('3')\n"
            "os.mkdir('output/folder')\n"
        )
        outcome = await runner.run(code, folder=folder)
    assert outcome.status is RunStatus.OK
    names = os.listdir(folder / "output")
    assert len(names) == 3
    assert all(name.isprintable() for name in names)
    assert "1 entry was not handed back" in outcome.detail


async def test_more_files_than_the_limits_allow_stay_there_and_that_is_told(
    open_sandbox: OpenSandbox, tmp_path: Path
) -> None:
    async with open_runner((await open_sandbox("landlock")).backend, tmp_path) as runner:
        folder = runner.new_folder()
        code = "for n in range(7): open(f'output/{n}', 'wb').write(bytes(1000))"
        outcome = await runner.run(code, folder=folder, scratch_files=5)
    assert len(os.listdir(folder / "output")) == 5
    assert outcome.status is RunStatus.DISK
    assert "2 entries were not handed back" in outcome.detail


async def test_nothing_of_a_run_stays_on_the_runner(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        await runner.run("open('output/a', 'w').write('1'); open('b', 'w').write('2')")
        await until(lambda: not os.listdir(tmp_path / "runner/runs"), "the run's folder is gone")


@pytest.mark.parametrize("code", ["\0", "print('\ud800')", "(" * 10_000, "print(1)\r\n", ""])
async def test_odd_source_arrives_as_it_is(open_sandbox: OpenSandbox, tmp_path: Path, kind: str, code: str) -> None:
    backend = (await open_sandbox(kind)).backend
    async with open_runner(backend, tmp_path) as runner:
        outcome = await runner.run(code)
        folder = runner.new_folder()
        direct = await backend.run(SandboxRun(code=code, folder=folder, limits=CEILINGS))
    assert (outcome.status, outcome.stdout, outcome.exit_code) == (direct.status, direct.stdout, direct.exit_code)


async def test_links_in_a_folder_are_not_followed_when_it_is_sent(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("secret")
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder(data="given")
        (folder / "input/link").symlink_to(tmp_path / "canary")
        os.link(tmp_path / "canary", folder / "input/hard")
        outcome = await runner.run("import os; print(os.listdir('input'))", folder=folder)
    assert outcome.stdout == "['data']\n"


# -- limits ----------------------------------------------------------------------------------------


async def test_the_smaller_one_of_each_limit_holds(sandbox: Sandbox, tmp_path: Path) -> None:
    ceilings = SandboxLimits(wall_s=3.0, cpu_s=20.0, output_bytes=2000)
    async with open_runner(sandbox.backend, tmp_path, ceilings=ceilings) as runner:
        slow = await runner.run("import time; time.sleep(50)", wall_s=40.0)
        assert slow.status is RunStatus.TIMEOUT
        assert "3 s" in slow.detail
        loud = await runner.run("print('x' * 5000)", output_bytes=1000)
        assert (len(loud.stdout), loud.stdout_cut) == (1000, True)
        loud = await runner.run("print('x' * 5000)", output_bytes=4000)
        assert (len(loud.stdout), loud.stdout_cut) == (2000, True)


async def test_output_that_is_no_text_arrives(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        outcome = await runner.run("import os; os.write(1, b'\\xff' * 5000); os.write(2, b'\\0')", output_bytes=4 * KiB)
    assert outcome.stdout == "\ufffd" * 4 * KiB
    assert (outcome.stderr, outcome.stdout_cut) == ("\0", True)


async def test_a_program_that_is_too_long_for_the_runner_is_not_run(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path, ceilings=SandboxLimits(source_bytes=1024)) as runner:
        with pytest.raises(SandboxUnavailable, match="longer than this runner takes"):
            await runner.run("#" * 2000)


# -- the end of a run ------------------------------------------------------------------------------


async def test_cancelling_kills_the_program_on_the_runner(sandbox: Sandbox, tmp_path: Path) -> None:
    name = f"cncl{os.getpid()}"
    async with open_runner(sandbox.backend, tmp_path) as runner:
        work = asyncio.create_task(runner.run(NAME_ITSELF.format(name=name) + "import time; time.sleep(50)"))
        await until(lambda: find_named(name), "the program runs")
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        await until(lambda: not find_named(name), "the program is gone")
        await until(lambda: not os.listdir(tmp_path / "runner/runs"), "its folder is gone")
        assert (await runner.run("print(1)")).stdout == "1\n"


async def test_a_client_that_goes_away_takes_its_program_with_it(sandbox: Sandbox, tmp_path: Path) -> None:
    name = f"gone{os.getpid()}"
    async with open_runner(sandbox.backend, tmp_path) as runner:
        body = build_program(NAME_ITSELF.format(name=name) + "import time; time.sleep(50)")
        sending = asyncio.create_task(runner.post(body))
        await until(lambda: find_named(name), "the program runs")
        sending.cancel()
        await until(lambda: not find_named(name), "the program is gone")


async def test_a_connection_that_breaks_during_a_run_is_told_and_nothing_is_repeated(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    name = f"lost{os.getpid()}"
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder()
        code = NAME_ITSELF.format(name=name) + "import time; open('output/a', 'w').write('1'); time.sleep(50)"
        work = asyncio.create_task(runner.run(code, folder=folder))
        await until(lambda: find_named(name), "the program runs")
        await runner.server._listener.aclose()  # as if the machine went away
        outcome = await work
        assert outcome.status is RunStatus.CRASHED
        assert "not run again" in outcome.detail
        assert os.listdir(folder / "output") == []
        await until(lambda: not find_named(name), "the program is gone")


async def test_a_request_that_comes_twice_is_run_once(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        body = build_program("print(1)", run="a" * 32)
        assert (await runner.post(body)).status == 200
        again = await runner.post(body)
        assert (again.status, again.data["error"]) == (409, "repeated")
        at_once = await asyncio.gather(*(runner.post(build_program("print(1)", run="b" * 32)) for _ in range(3)))
    assert sorted(reply.status for reply in at_once) == [200, 409, 409]


# -- turns -----------------------------------------------------------------------------------------


async def test_a_runner_without_room_says_when_to_come_again(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    name = f"busy{os.getpid()}"
    backend = (await open_sandbox("landlock")).backend
    async with open_runner(backend, tmp_path, places=1, most_waiting=0) as runner:
        work = asyncio.create_task(runner.run(NAME_ITSELF.format(name=name) + "import time; time.sleep(50)"))
        await until(lambda: find_named(name), "the program runs")
        with pytest.raises(SandboxUnavailable, match=r"is busy; try again in 5 s; nothing was run"):
            await runner.run("print(1)")
        assert (await runner.post(build_program("print(1)"))).headers["retry-after"] == "5"
        work.cancel()
        await asyncio.wait({work})
        await until(lambda: not find_named(name), "the program is gone")
        await until(lambda: not runner.server._taken, "its place is free")
        assert (await runner.run("print(1)")).stdout == "1\n"


async def test_a_request_waits_for_its_turn_only_so_long(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    name = f"turn{os.getpid()}"
    backend = (await open_sandbox("landlock")).backend
    async with open_runner(backend, tmp_path, places=1, queue_s=0.1) as runner:
        work = asyncio.create_task(runner.run(NAME_ITSELF.format(name=name) + "import time; time.sleep(50)"))
        await until(lambda: find_named(name), "the program runs")
        with pytest.raises(SandboxUnavailable, match="is busy"):
            await runner.run("print(1)")
        work.cancel()
        await asyncio.wait({work})


async def test_programs_of_one_thread_run_one_after_the_other(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    backend = (await open_sandbox("landlock", places=4)).backend
    async with open_runner(backend, tmp_path, places=4) as runner:
        threads = ("2" * 64, "2" * 64, "3" * 64)
        code = "import time; a = time.monotonic(); time.sleep(0.5); print(a, time.monotonic())"
        bodies = [build_program(code, run=f"{n:032x}", thread=thread) for n, thread in enumerate(threads)]
        replies = await asyncio.gather(*(runner.post(body) for body in bodies))
    spans = [tuple(map(float, reply.body.split(b"}")[-1].split())) for reply in replies]
    first, second = sorted(spans[:2])
    assert first[1] <= second[0]


# -- sessions --------------------------------------------------------------------------------------

COUNT = "try:\n    n += 1\nexcept NameError:\n    n = 1\nprint(n)"


async def test_a_session_keeps_its_variables_and_its_files(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder(first="1")
        first = await runner.run(COUNT + "\nopen('output/a', 'w').write('kept')", folder=folder, session="s")
        (folder / "input/second").write_text("2")
        second = await runner.run(
            COUNT + "\nprint(open('input/second').read(), open('output/a').read())", folder=folder, session="s"
        )
        other = await runner.run(COUNT, session="other")
        third = await runner.run(COUNT + "\nimport os; os.remove('output/a')", folder=folder, session="s")
    assert [o.state for o in (first, second, other, third)] == ["fresh", "continued", "fresh", "continued"]
    assert second.stdout == "2\n2 kept\n"
    assert (third.stdout, other.stdout) == ("3\n", "1\n")
    assert os.listdir(folder / "output") == []


async def test_a_session_belongs_to_its_thread(open_sandbox: OpenSandbox, tmp_path: Path) -> None:
    backend = (await open_sandbox("landlock")).backend
    async with open_runner(backend, tmp_path) as runner:
        await runner.post(build_program("x = 1", run="a" * 32, session="5" * 64))
        reply = await runner.post(build_program("print(x)", run="b" * 32, session="5" * 64, thread="9" * 64))
    assert b"NameError" in reply.body


async def test_a_session_is_told_to_be_lost_when_the_runner_was_started_anew(
    open_sandbox: OpenSandbox, kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "thread/run"
    marks = tmp_path / "marks"
    marks.mkdir()
    states = []
    for start in range(3):
        backend = (await open_sandbox(kind)).backend
        async with open_runner(backend, tmp_path / str(start), marks=marks) as runner:
            (folder / "output").mkdir(parents=True, exist_ok=True)
            states.append((await runner.run(COUNT, folder=folder, session="s")).state)
    assert states == ["fresh", "lost", "lost"]


async def test_a_session_whose_program_took_too_long_is_lost(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        folder = runner.new_folder()
        await runner.run(COUNT, folder=folder, session="s")
        slow = await runner.run("while True: pass", folder=folder, session="s", wall_s=1.0)
        after = await runner.run(COUNT, folder=folder, session="s")
    assert (slow.status, slow.state) == (RunStatus.TIMEOUT, "continued")
    assert (after.stdout, after.state) == ("1\n", "lost")


# -- what is said ----------------------------------------------------------------------------------


async def test_the_settings_open_a_runner_and_doctor_learns_what_it_enforces(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path, canaries=True) as runner:
        settings = SandboxSettings(backend="runner", runner_url=runner.url, runner_token=SecretStr(TOKEN))
        backend = await choose_sandbox(settings, state=tmp_path / "state")
        seen = await backend.probe()
        (tmp_path / "thread/run").mkdir(parents=True)
        outcome = await backend.run(SandboxRun(code="print(1)", folder=tmp_path / "thread/run"))
        await backend.aclose()
    assert (backend.name, backend.enforcing, seen.works, outcome.stdout) == ("runner", True, True, "1\n")
    assert seen.facts["backend"] == sandbox.backend.name
    assert seen.facts["runner"] == runner.url
    assert "not encrypted" in seen.facts["transport"]
    assert "runner's landlock" in seen.facts
    assert TOKEN not in str(seen)


async def test_a_client_enforces_nothing_before_the_runner_has_said_so(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        assert not runner.client.enforcing
        await runner.client.connect()
        assert runner.client.enforcing


async def test_a_wrong_token_is_told_with_what_to_do(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        for token in (TOKEN[:-1], f"{TOKEN}x", "x"):
            client = RunnerBackend(runner.url, token)
            with pytest.raises(SandboxUnavailable, match=r"refuses the token: sandbox\.runner_token"):
                await client.connect()
            assert not client.enforcing
            await client.aclose()


async def test_a_runner_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    client = RunnerBackend("http://127.0.0.1:9", TOKEN)
    with pytest.raises(
        SandboxUnavailable, match=r"cannot be reached \(Connection refused\); is `hermod sandbox serve`"
    ):
        await client.run(SandboxRun(code="print(1)", folder=tmp_path))
    await client.aclose()


async def test_a_runner_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    client = RunnerBackend(f"http://127.0.0.1:{port}", TOKEN, patience=RunnerPatience(probe_s=0.2))
    with pytest.raises(SandboxUnavailable, match="did not answer in time"):
        await client.connect()
    await client.aclose()
    silent.close()
    for writer in writers:
        writer.close()


async def test_a_server_without_tls_is_told_by_name(sandbox: Sandbox, tmp_path: Path) -> None:
    async with open_runner(sandbox.backend, tmp_path) as runner:
        client = RunnerBackend(runner.url.replace("http:", "https:"), TOKEN)
        with pytest.raises(SandboxUnavailable, match=r"certificate|reached|broke"):
            await client.connect()
        await client.aclose()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://8.8.8.8:8485", "public Internet"),
        ("http://[2606:4700:4700::1111]:8485", "public Internet"),
        ("http://user:pass@runner:8485", "runner_token"),
        ("http://runner:8485/?token=x", "runner_token"),
        ("ftp://runner", "https://"),
        ("http://", "name a host"),
        ("http://runner:99999", "cannot be read"),
        ("runner:8485", "https://"),
    ],
)
def test_an_address_that_must_not_be_used_is_refused(url: str, text: str) -> None:
    with pytest.raises(SandboxUnavailable, match=text) as caught:
        RunnerBackend(url, TOKEN)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "two words", "line\r\nInjected: 1", "ümlaut"])
def test_a_token_that_cannot_stand_in_a_header_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SandboxUnavailable, match="visible ASCII") as caught:
        RunnerBackend("http://runner:8485", token)
    assert not token or token not in str(caught.value)


@pytest.mark.parametrize("token", ["", "short", "with blanks in it 0123456789"])
async def test_a_runner_does_not_start_without_a_good_token(
    open_sandbox: OpenSandbox, tmp_path: Path, token: str
) -> None:
    backend = (await open_sandbox("landlock")).backend
    with pytest.raises(NotStarted, match="openssl rand"):
        RunnerServer(backend, token=token, folders=RunFolders(tmp_path))


async def test_a_runner_does_not_start_with_a_backend_that_locks_nothing_in(
    open_sandbox: OpenSandbox, tmp_path: Path
) -> None:
    tuning = (await open_sandbox("landlock")).backend.tuning
    host = HostBackend(await find_interpreter(None), tuning)
    with pytest.raises(NotStarted, match="locks nothing in"):
        RunnerServer(host, token=TOKEN, folders=RunFolders(tmp_path))


async def test_two_runners_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = RunFolders(tmp_path / "runner"), RunFolders(tmp_path / "runner")
    first.open()
    with pytest.raises(SandboxUnavailable, match=r"another runner uses .* sandbox\.folder"):
        second.open()
    first.close()
    second.open()
    second.close()


async def test_what_a_runner_that_was_killed_left_is_dropped_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "runs/0/run/output").mkdir(parents=True)
    (tmp_path / "sessions/0").mkdir(parents=True)
    folders = RunFolders(tmp_path)
    folders.open()
    assert os.listdir(tmp_path / "runs") + os.listdir(tmp_path / "sessions") == []
    folders.close()


async def test_folders_of_sessions_go_when_their_interpreter_has_ended(tmp_path: Path) -> None:
    now = 0.0
    folders = RunFolders(tmp_path, monotonic=lambda: now)
    folders.open()
    async with folders.hold_session("old"):
        now = 5000.0
        await folders.sweep()
        assert len(os.listdir(tmp_path / "sessions")) == 1
    now = 5000.0 + 899
    await folders.sweep()
    assert len(os.listdir(tmp_path / "sessions")) == 1
    now = 5000.0 + 901
    await folders.sweep()
    assert os.listdir(tmp_path / "sessions") == []
    folders.close()


async def test_a_runner_that_ends_lets_programs_finish_and_takes_no_more(
    open_sandbox: OpenSandbox, tmp_path: Path
) -> None:
    name = f"drain{os.getpid()}"
    backend = (await open_sandbox("landlock")).backend
    async with open_runner(backend, tmp_path) as runner:
        work = asyncio.create_task(runner.run(UNTIL_TOLD.format(name=name) + "print(1)"))
        await until(lambda: find_named(name), "the program runs")
        draining = asyncio.create_task(runner.server.drain())
        await until(lambda: not runner.server.well, "it drains")
        with pytest.raises(SandboxUnavailable, match="cannot be reached"):
            await runner.run("print(2)")
        tell(name)
        assert (await work).stdout == "1\n"
        await draining
