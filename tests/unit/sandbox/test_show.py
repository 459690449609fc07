"""What people and models read of a run: nothing in an output breaks out of its place, and cuts are told."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.markdown.parse import parse_markdown
from adapters.markdown.tree import CodeBlock, Paragraph, plain_text
from adapters.markdown.tree import Table as TableBlock
from bot.tools.python_sandbox.cell import build_cell
from bot.tools.python_sandbox.collect import LeftOut
from bot.tools.python_sandbox.files import FileKind, MadeFile
from bot.tools.python_sandbox.made import Made, Table
from bot.tools.python_sandbox.show import (
    LOST,
    OUTPUT_NAME,
    SHOWN_CHARS,
    SHOWN_LINES,
    build_attachments,
    build_result,
    clean_stderr,
    find_output_id,
    render_made,
)
from bot.tools.python_sandbox.types import MiB, RunStatus, SandboxOutcome, SessionState

ID = "py_0123456789abcdef"


def made(
    stdout: str = "",
    stderr: str = "",
    *,
    status: RunStatus = RunStatus.OK,
    files: tuple[MadeFile, ...] = (),
    table: Table | None = None,
    cut: bool = False,
    state: SessionState = "fresh",
    detail: str = "",
) -> Made:
    outcome = SandboxOutcome(
        status=status,
        stdout=stdout,
        stderr=stderr,
        stdout_cut=cut,
        state=state,
        detail=detail,
        peak_memory_bytes=3 * MiB // 2,
    )
    return Made(output_id=ID, outcome=outcome, files=files, table=table)


def file(name: str, content: bytes = b"x", kind: FileKind = "txt") -> MadeFile:
    return MadeFile(name=name, content=content, kind=kind)


def code_blocks(text: str) -> list[str]:
    return [block.text for block in parse_markdown(text).blocks if isinstance(block, CodeBlock)]


# -- for people ------------------------------------------------------------------------------------


def test_an_output_is_a_block_of_code() -> None:
    text, files = render_made(made("one\n  two\n"))
    assert code_blocks(text) == ["one\n  two"]
    assert files == ()


@pytest.mark.parametrize("inside", ["```", "a\n```\n**bold** <!channel>\n```", "`````", "~~~\nx", "```py\nx\n````"])
def test_snekbox_1167_fences_in_an_output_do_not_end_the_block(inside: str) -> None:
    text, _ = render_made(made(inside))
    assert code_blocks(text) == [inside]
    assert len(parse_markdown(text).blocks) == 1


@given(st.text(alphabet="`~ \n|<>@#*_\\x漢", max_size=60), st.text(alphabet="`~\nx|", max_size=40))
def test_whatever_is_printed_stays_in_its_block(stdout: str, stderr: str) -> None:
    text, _ = render_made(made(stdout, stderr))
    blocks = parse_markdown(text).blocks
    shown = [block for block in blocks if isinstance(block, CodeBlock)]
    assert len(shown) == sum(bool(part.rstrip("\n").strip()) for part in (stdout, stderr))
    assert len(blocks) == max(len(shown), 1)
    for part, block in zip((p for p in (stdout, stderr) if p.rstrip("\n").strip()), shown, strict=True):
        assert block.text.strip("\n") == part.rstrip("\n").strip("\n")


def test_what_steers_a_terminal_is_not_shown() -> None:
    text, _ = render_made(made("\x1b[31mred\x1b[0m\x1b]0;title\x07 a\x00b\r\nprogress\rdone\x9b1m\x07"))
    assert code_blocks(text) == ["red ab\nprogress\ndone1m"]


def test_snekbox_3045_a_cut_output_goes_along_whole_and_both_say_the_same() -> None:
    stdout = "".join(f"line {n}\n" for n in range(5_000))
    text, files = render_made(made(stdout, "warning", cut=True))
    (whole,) = files
    assert (whole.name, whole.encoding) == (OUTPUT_NAME, "text")
    assert stdout in whole.content
    assert "warning" in whole.content
    (shown, warned) = code_blocks(text)
    assert stdout.startswith(shown)
    assert len(shown.splitlines()) <= SHOWN_LINES
    assert len(shown) <= SHOWN_CHARS
    assert warned == "warning"
    (note,) = re.findall(r"^\*(stdout: .*)\*$", text, re.MULTILINE)
    assert note == (
        f"stdout: the first {len(shown):,} of {len(stdout) - 1:,} characters (5,000 lines); output.txt has them all. "
        "The program wrote more to stdout than the sandbox keeps."
    )
    assert f"--- {note} ---" in whole.content


@settings(max_examples=40)
@given(st.text(alphabet="ab\n`漢", max_size=9_000))
def test_the_shown_part_and_the_file_agree(stdout: str) -> None:
    text, files = render_made(made(stdout))
    clean = stdout.rstrip("\n")
    shown = "\n".join(code_blocks(text))
    assert len(shown) <= SHOWN_CHARS
    if len(clean) > SHOWN_CHARS or clean.count("\n") >= SHOWN_LINES:
        assert clean in files[0].content
        assert f"of {len(clean):,} characters" in text
    else:
        assert files == ()


def test_one_endless_line_is_cut_too() -> None:
    text, (whole,) = render_made(made("x" * 5_000))
    assert code_blocks(text) == ["x" * SHOWN_CHARS]
    assert "the first 3,000 of 5,000 characters (1 line)" in text
    assert "x" * 5_000 in whole.content


def test_a_program_that_prints_nothing_says_so() -> None:
    assert render_made(made())[0] == "*The program printed nothing.*"
    text, files = render_made(made("\n", files=(file("p.png", b"\x89PNG\r\n\x1a\n", "png"),)))
    assert text == "*The program printed nothing; see its files.*"
    assert [f.name for f in files] == ["p.png"]


@pytest.mark.parametrize("status", [s for s in RunStatus if s is not RunStatus.OK])
def test_every_end_that_is_none_of_the_programs_wishes_is_headed(status: RunStatus) -> None:
    text, _ = render_made(made("so far", status=status, detail="It *was* ended [here](x)."))
    head = parse_markdown(text).blocks[0]
    assert isinstance(head, Paragraph)
    assert plain_text(head.children).endswith(": It *was* ended [here](x).")
    assert code_blocks(text) == ["so far"]


def test_an_exception_shows_its_traceback() -> None:
    text, _ = render_made(
        made(stderr="Traceback (most recent call last):\n  ...\nKeyError: 'x'\n", status=RunStatus.ERROR)
    )
    assert text.startswith("**The program failed**\n\n```\nTraceback")


def test_lost_variables_are_told() -> None:
    assert LOST in render_made(made("x", state="lost"))[0]
    assert LOST in str(build_result(made("x", state="lost"), given={}, limit=4000)["detail"])


def test_files_that_were_left_out_are_named_without_markdown() -> None:
    run = Made(
        output_id=ID,
        outcome=SandboxOutcome(status=RunStatus.OK, stdout="x"),
        left_out=(LeftOut(name="a_b_c", reason="it is a link"),),
        more_left_out=7,
        missing=(LeftOut(name="big.csv", reason="it has 90.0 MB"),),
    )
    text, _ = render_made(run)
    assert "Not handed in:\n- big.csv: it has 90.0 MB" in text
    assert "Left out, and 7 more:\n- a\\_b\\_c: it is a link" in text


def test_a_data_frame_is_a_table_whatever_its_cells_say() -> None:
    cells = ("a|b", "**x** `y` <!channel> @everyone [l](http://x)", "\n---\n# h", "\\|", "")
    table = Table(columns=("n|ame", *"bcde"), rows=(cells,) * 12, row_count=1200, column_count=7)
    text, _ = render_made(made(table=table))
    found, note = parse_markdown(text).blocks
    assert isinstance(found, TableBlock)
    assert [plain_text(cell).strip() for cell in found.header] == ["n|ame", *"bcde"]
    assert len(found.rows) == 10
    shown = [plain_text(cell).strip() for cell in found.rows[0]]
    assert shown == ["a|b", "**x** `y` <!channel> @everyone [l](http://x)", "--- # h", "\\|", ""]
    assert isinstance(note, Paragraph)
    assert plain_text(note.children) == "The first 10 of 1,200 rows × 7 columns."


# -- files -----------------------------------------------------------------------------------------


def test_of_files_with_one_name_the_newest_is_posted() -> None:
    runs = [made(files=(file("a.txt", b"1"), file("b.txt", b"2"))), made(files=(file("a.txt", b"3"),))]
    found = [(a.name, base64.b64decode(a.content)) for a in build_attachments(runs)]
    assert found == [("b.txt", b"2"), ("a.txt", b"3")]


def test_an_answer_brings_the_newest_files_that_fit() -> None:
    runs = [made(files=tuple(file(f"{n}.txt", b"x" * 100) for n in range(8)))]
    assert [a.name for a in build_attachments(runs, most_files=3)] == ["5.txt", "6.txt", "7.txt"]
    assert [a.name for a in build_attachments(runs, most_bytes=250)] == ["6.txt", "7.txt"]


def test_a_file_is_posted_under_the_name_that_its_content_allows() -> None:
    (posted,) = build_attachments([made(files=(file("x.svg", b"<svg/>", "other"),))])
    assert (posted.name, posted.title) == ("x.svg.bin", "x.svg.bin")


# -- for the model ---------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.text(max_size=3_000),
    st.text(alphabet='"\\\n\x01漢😀', max_size=6_000),
    st.sampled_from(list(RunStatus)),
    st.integers(3_000, 8_000),
)
def test_a_result_fits_its_limit_and_says_what_was_cut(stdout: str, stderr: str, status: RunStatus, limit: int) -> None:
    result = build_result(made(stdout, stderr, status=status), given={"a.csv": 3}, limit=limit)
    text = json.dumps(result, ensure_ascii=False)
    assert len(text) <= limit
    assert list(result)[:2] == ["ok", "output_id"]
    assert find_output_id(json.dumps(result, separators=(",", ":"))) == ID
    assert result["stdout_truncated"] == (result["stdout"] != stdout)
    assert result["stderr_truncated"] == (result["stderr"] != clean_stderr(stderr))
    assert result["ok"] == (status is RunStatus.OK)
    assert ("error" in result) == (status is not RunStatus.OK)


def test_output_that_the_sandbox_cut_is_told_also_where_all_that_is_left_fits() -> None:
    result = build_result(made("x", cut=True), given={}, limit=4000)
    assert (result["stdout_truncated"], result["stderr_truncated"]) == (True, False)
    assert result["peak_memory_mb"] == 1.5


def test_only_the_lines_of_the_wrapper_are_taken_out_of_a_traceback() -> None:
    wrapped = (
        "Traceback (most recent call last):\n"
        '  File "<code>", line 74, in <module>\n    globals().pop("__cell__")(...)\n'
        '  File "<code>", line 65, in __cell__\n    exec(tree)\n'
        '  File "program.py", line 1, in <module>\n    import json.nothing\n'
        "ModuleNotFoundError: No module named 'json.nothing'\n"
    )
    assert clean_stderr(wrapped).splitlines()[1] == '  File "program.py", line 1, in <module>'
    assert clean_stderr(f"note\n{wrapped}\nDuring handling\n\n{wrapped}").count("__cell__") == 0
    for text in ("", "plain\n", 'Traceback (most recent call last):\n  File "program.py", line 1, in __cell__\n'):
        assert clean_stderr(text) == text


@given(st.text(max_size=200))
def test_any_text_can_be_sent_as_a_program(code: str) -> None:
    wrapped = build_cell(code)
    wrapped.encode()
    assert "\0" not in wrapped
    assert wrapped.rstrip().endswith(f"({code!r}, globals())")
