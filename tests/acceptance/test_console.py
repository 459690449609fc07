"""``python -m agent_core`` as somebody meets it who wants an agent and no product: on a terminal and on a pipe."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.terminal import Place, open_place, open_terminal
from tests.integration.cli.command import build_environ
from tests.servers import anthropic
from tests.servers.anthropic import AnthropicServer
from tests.servers.openai import Failure, OpenAIServer, Request, text_of

KEY = "sk-local-0123456789abcdefghij"


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with open_place() as place:
        yield place
        assert place.list_processes() == {}


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer(models=()) as running:
        yield running
        assert running.violations == []


def model(server: OpenAIServer, name: str = "gpt-4o-mini") -> dict[str, str]:
    return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": name, "ANTHROPIC_API_KEY": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    code: int
    out: str
    err: str


async def start(folder: Path, *words: str, before: str = "", **variables: str) -> asyncio.subprocess.Process:
    """Start the console on pipes, in a shell that did ``before``."""
    variables = {"ANTHROPIC_API_KEY": "", "XDG_STATE_HOME": str(folder / "state"), **variables}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        "sh", "-c", f'{before}\nexec "$@"', "sh", sys.executable, "-m", "agent_core", *words,
        cwd=folder, env=build_environ(**variables), stdin=pipe, stdout=pipe, stderr=pipe,
    )  # fmt: skip


async def converse(folder: Path, lines: str | bytes, *words: str, before: str = "", **variables: str) -> Done:
    """Run the console on a pipe until the input is at its end."""
    process = await start(folder, *words, before=before, **variables)
    async with asyncio.timeout(60):
        out, err = await process.communicate(lines if isinstance(lines, bytes) else lines.encode())
    assert process.returncode is not None
    return Done(code=process.returncode, out=out.decode(), err=err.decode())


def history(folder: Path) -> Path:
    return folder / "state" / "agent_core" / "history.jsonl"


# -- on a terminal ---------------------------------------------------------------------------------------


async def test_it_streams_shows_tools_as_they_run_and_remembers_across_restarts(
    server: OpenAIServer, place: Place
) -> None:
    released = asyncio.Event()
    server.on(user="17", step=0).tools(("calculator", {"expression": "17 * 23"}))
    held = server.on(user="17", step=1).text("It is 391, as the calculator says.")
    held.wait = released
    known = server.on(user="what was it", where=lambda r: any("calculator says" in text_of(m) for m in r.messages))
    known.text("I know of 391.")
    variables = {**model(server), "XDG_STATE_HOME": str(place.work)}
    async with open_terminal(place, module="agent_core", **variables) as terminal:
        assert "gpt-4o-mini" in await terminal.wait_for("you> ")
        terminal.type("what is 17 * 23?\n")
        await terminal.wait_for("calculator done in")  # before the model has answered
        assert '… calculator {"expression": "17 * 23"}' in terminal.screen
        released.set()
        await terminal.wait_for("It is 391, as the calculator says.")
        await terminal.wait_for("you> ")
        assert terminal.screen.count("It is 391") == 1  # what was streamed is not shown again
        terminal.type("/trace\n")
        assert re.search(r"2\. tool +calculator", await terminal.wait_for("you> "))
        terminal.type("/usage\n")
        assert re.search(r"1 runs, [1-9]\d* tokens, \$0\.\d+", await terminal.wait_for("you> "))
        terminal.type("/providers\n")
        assert "openai (gpt-4o-mini): breaker closed, 2 requests, 0 errors" in await terminal.wait_for("you> ")
        terminal.type("quit\n")
        assert await terminal.wait() == 0
    assert re.search(r"1 runs, [1-9]\d* tokens", terminal.screen.rpartition("quit")[2])
    async with open_terminal(place, module="agent_core", **variables) as terminal:
        assert "Remembered messages: 4" in await terminal.wait_for("you> ")
        terminal.type("what was it?\n")
        await terminal.wait_for("I know of 391")
        terminal.type("\x04")  # Ctrl-D
        assert await terminal.wait() == 0


async def test_ctrl_c_stops_the_run_and_a_second_one_at_the_prompt_the_console(
    server: OpenAIServer, place: Place
) -> None:
    asked = asyncio.Event()

    def hang(request: Request) -> Failure:
        asked.set()
        return Failure(500, "", "", hang=True)

    server.on(user="forever").dynamic(hang)
    server.on(user="there").text("here I am")
    async with open_terminal(place, "--no-history", module="agent_core", **model(server)) as terminal:
        await terminal.wait_for("you> ")
        terminal.type("think forever\n")
        await asyncio.wait_for(asked.wait(), 30)
        terminal.type("\x03")
        await terminal.wait_for("Stopped.")
        await terminal.wait_for("you> ")
        terminal.type("are you there?\n")
        await terminal.wait_for("here I am")
        await terminal.wait_for("you> ")
        terminal.type("\x03")
        assert await terminal.wait() == 0
    assert re.search(r"2 runs, [1-9]\d* tokens", terminal.screen)
    assert "Traceback" not in terminal.screen


async def test_an_answer_cannot_drive_the_terminal(server: OpenAIServer, place: Place) -> None:
    server.on().text("one \x1b]0;owned\x07 two \x1b[2J three \u202e four")
    async with open_terminal(place, "--no-history", module="agent_core", **model(server)) as terminal:
        await terminal.wait_for("you> ")
        terminal.type("hello\n")
        await terminal.wait_for("four")
        terminal.type("\x04")
        await terminal.wait()
    assert not set("\x1b\x07\u202e") & set(terminal.screen)


# -- on a pipe -------------------------------------------------------------------------------------------


async def test_it_answers_without_a_key_and_says_that_no_model_does(tmp_path: Path) -> None:
    done = await converse(tmp_path, "what is 17 * 23?\n/tools\n/nonsense\n/summary\n/usage\nEXIT\nnever asked\n")
    assert (done.code, done.err) == (0, "")
    assert "neither OPENAI_API_KEY nor ANTHROPIC_API_KEY is set" in done.out
    assert "391" in done.out
    assert "- calculator: " in done.out
    assert "there is no command /nonsense" in done.out
    assert "there is no summary" in done.out
    assert done.out.count("1 runs, 0 tokens, $0.0000") == 2  # asked for, and at the end
    assert "you>" not in done.out


async def test_a_price_that_nobody_knows_is_unknown_and_not_zero(server: OpenAIServer, tmp_path: Path) -> None:
    server.on().text("ok")
    done = await converse(tmp_path, "hello\n", **model(server, "house-model-7"))
    assert re.search(r"1 runs, [1-9]\d* tokens, cost unknown\n", done.out)


async def test_the_key_of_another_vendor_is_enough(tmp_path: Path) -> None:
    async with AnthropicServer(anthropic.Reply("hello from Claude")) as claude:
        variables = {"ANTHROPIC_API_KEY": claude.api_key, "ANTHROPIC_BASE_URL": claude.base_url}
        done = await converse(tmp_path, "hello\n/providers\n", **variables)
        assert claude.violations == []
    assert "hello from Claude" in done.out
    assert "anthropic (claude-haiku-5-5): breaker closed, 1 requests" in done.out
    assert re.search(r"1 runs, [1-9]\d* tokens, \$0", done.out)


async def test_a_broken_provider_is_told_and_the_console_goes_on(server: OpenAIServer, tmp_path: Path) -> None:
    server.on(user="first").fail(401, message="Incorrect API key provided")
    server.on().text("now it works")
    done = await converse(tmp_path, "the first\nthe second\n/providers\n", **model(server))
    assert re.search(r"failed: .*Incorrect API key provided", done.out)
    assert "now it works" in done.out
    assert "2 requests, 1 errors" in done.out
    assert "Traceback" not in done.out + done.err
    assert done.code == 0


async def test_an_answer_that_breaks_off_begins_again_visibly(server: OpenAIServer, tmp_path: Path) -> None:
    server.on().text("the first half of an answer that breaks", quirk="cut", at=4).once()
    server.on().text("the whole answer")
    done = await converse(tmp_path, "hello\n", **model(server))
    assert re.search(r"the first .*\n  … the answer starts again: openai: .*\nthe whole answer\n", done.out)


async def test_a_summary_is_shown_corrected_kept_and_forgotten(server: OpenAIServer, tmp_path: Path) -> None:
    def sees(text: str) -> Callable[[Request], bool]:
        return lambda request: any(text in text_of(m) for m in request.messages)

    server.on(user="words, or 200 characters").text("People spoke of disks.")
    server.on(user="now", where=sees("They spoke of tapes.")).text("I know of tapes.")
    server.on().text("noted")
    question = "disk " * 800
    lines = f"{question}\n" * 6 + "/summary\n/summary They spoke of tapes.\n"
    done = await converse(tmp_path, lines, **model(server))
    assert "… the oldest messages are now a summary, which /summary corrects: People spoke of disks." in done.out
    assert "\nPeople spoke of disks.\ncorrected\n" in done.out

    again = await converse(tmp_path, "/summary\nand now?\n/summary forget\n/summary\n", **model(server))
    assert "\nThey spoke of tapes.\nI know of tapes.\nforgotten\nthere is no summary" in again.out
    said = [text_of(m) for m in server.requests[-1].messages]

    last = await converse(tmp_path, "/summary\nand now?\n", **model(server))
    assert "there is no summary" in last.out
    assert "I know of tapes." not in last.out.partition("there is no summary")[2]
    sent = [text_of(m) for m in server.requests[-1].messages]
    assert sent[1:-2] == said[2:]  # what the summary stood for is not sent any more
    kept = [json.loads(line) for line in history(tmp_path).read_text().splitlines()]
    assert sum(entry.get("content") == question.strip() for entry in kept) == 6  # nothing leaves the file


async def test_a_summary_that_is_forgotten_takes_with_it_what_it_stood_for(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.on(user="words, or 200 characters").text("People spoke of disks.")
    server.on().text("noted")
    lines = ("disk " * 800 + "\n") * 6 + "/summary forget\nand now?\n"
    await converse(tmp_path, lines, **model(server))
    sent = [text_of(m) for m in server.requests[-1].messages]
    assert 0 < sum("disk disk" in text for text in sent) < 6
    assert not any("People spoke of disks." in text for text in sent)


async def test_the_history_is_for_its_owner_only_and_damaged_lines_are_left_out(
    server: OpenAIServer, tmp_path: Path
) -> None:
    server.on(user="again", where=lambda r: "blue" in text_of(r.messages[1])).text("you said blue")
    server.on().text("noted")
    await converse(tmp_path, "the sky is blue\n", **model(server))
    path = history(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b'no json\n{"role":"nobody"}\n\xff\xfe\n[]\n{"role":"user","conte')  # the last was cut off
    done = await converse(tmp_path, "say it again\n", **model(server))
    assert "Remembered messages: 2, 5 damaged lines left out" in done.out
    assert "you said blue" in done.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = await converse(tmp_path, "", **model(server))
    assert "Remembered messages: 4, 5 damaged" in again.out  # the cut line took nothing with it


async def test_what_is_forgotten_is_gone_from_the_file_too(server: OpenAIServer, tmp_path: Path) -> None:
    server.on(where=lambda r: any("secret" in text_of(m) for m in r.messages[:-1])).text("I remember")
    server.on().text("ok")
    done = await converse(tmp_path, "a secret\n/forget\nand now?\n", **model(server))
    assert "I remember" not in done.out
    assert "secret" not in history(tmp_path).read_text()
    assert "Remembered messages: 2." in (await converse(tmp_path, "", **model(server))).out


async def test_another_file_and_no_file_can_be_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "talk.jsonl"
    await converse(tmp_path, "hello\n", "--history", str(mine))
    assert len(mine.read_text().splitlines()) == 2
    await converse(tmp_path, "hello\n", "--no-history")
    assert not history(tmp_path).exists()


async def test_a_history_that_cannot_be_used_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for place, why in (
        (tmp_path, "Is a directory"),
        (Path("/dev/zero"), "is no file"),
        (Path("/proc/no/x"), "No such"),
    ):
        done = await converse(tmp_path, "hello\n", "--history", str(place))
        assert done.code == 2
        assert re.fullmatch(rf"agent_core: .*{why}.*--no-history keeps none\n", done.err)


async def test_a_history_that_cannot_be_written_any_more_is_told_and_the_console_goes_on(tmp_path: Path) -> None:
    done = await converse(tmp_path, "hello\nwhat is 17 * 23?\n", before="ulimit -f 0")
    assert "the history was not saved: " in done.out
    assert "391" in done.out
    assert done.code == 0


async def test_bytes_that_are_no_text_are_a_question_like_any_other(server: OpenAIServer, tmp_path: Path) -> None:
    server.on(user="caf\ufffd").text("I read it")
    done = await converse(tmp_path, b"caf\xe9\nquit", **model(server))
    assert "I read it" in done.out
    assert done.code == 0


async def test_no_vendor_library_is_imported_before_a_question(server: OpenAIServer, tmp_path: Path) -> None:
    server.on().text("ok")
    vendors = r"\| +(openai|anthropic|tiktoken|genai_prices|opentelemetry)\n"
    variables = {**model(server), "PYTHONPROFILEIMPORTTIME": "1"}
    quiet = await converse(tmp_path, "/tools\n/usage\n", **variables)
    assert re.findall(vendors, quiet.err) == []
    asked = await converse(tmp_path, "hello\n", **variables)
    assert set(re.findall(vendors, asked.err)) == {"openai", "genai_prices"}


async def test_ctrl_c_while_a_pipe_is_silent_ends_it_cleanly(tmp_path: Path) -> None:
    process = await start(tmp_path)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"/usage\n")
    async with asyncio.timeout(60):
        while b"0 runs" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert await process.wait() in (0, 130)  # 130 where it came between two lines
        assert await process.stderr.read() == b""


async def test_a_reader_that_leaves_ends_it_quietly(tmp_path: Path) -> None:
    command = f"yes /tools | head -n 2000 | {sys.executable} -m agent_core --no-history | head -c 1"
    process = await asyncio.create_subprocess_shell(
        command, env=build_environ(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert err == b""
