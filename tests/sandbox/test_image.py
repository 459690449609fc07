"""The container image, as far as it can be looked at without Docker."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from bot.tools.python_sandbox.interpreter import copy_font_list, find_interpreter, name_fonts
from tests.sandbox.battery.container import USER

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_everything_that_the_image_copies_is_there_and_is_not_left_out() -> None:
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M) for name in line.split()]
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {"bot", "constraints.txt"} <= set(copied)
    assert [name for name in copied if not (ROOT / name).exists() or name in left_out] == []
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(packages["packages"]) <= set(copied)
    assert {".git", ".venv*", "hermod.toml", "*.db*"} <= set(left_out)


def test_the_image_installs_extras_that_there_are_the_sandbox_among_them() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[([a-z,]+)\]'", DOCKERFILE)
    assert "sandbox" in extras.split(",")
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()


def test_the_image_runs_as_the_user_of_the_documented_command_line() -> None:
    documented = (ROOT / "docs/sandbox.md").read_text()
    command = documented[documented.index("docker run --read-only") :].partition("\n\n")[0]
    assert f"--uid {USER}" in DOCKERFILE
    assert f"uid={USER},gid={USER}" in command
    assert DOCKERFILE.rindex("\nUSER hermod\n") > DOCKERFILE.rindex("\nRUN ")
    assert not re.search(r"--privileged|--cap-add|unconfined|docker\.sock|--pid|--network[= ]host", command)
    assert {"--read-only", "--cap-drop ALL", "--security-opt no-new-privileges"} <= set(
        re.findall(r"--[a-z-]+(?: [A-Za-z][\w-]+)?", command)
    )


async def test_a_font_list_that_was_built_before_is_taken_over_for_the_same_fonts_only(tmp_path: Path) -> None:
    interpreter = await find_interpreter(None)
    built = type(interpreter)(
        executable=interpreter.executable, prefix=str(tmp_path), base_prefix="/usr", version=interpreter.version
    )
    fonts = f"fonts-{name_fonts()}"
    folder, cache, other = tmp_path / "share/hermod" / fonts, tmp_path / fonts, tmp_path / "fonts-of-another-time"
    for made in (folder, cache, other):
        made.mkdir(parents=True)
    (folder / "fontlist-v1.json").write_text("built")
    copy_font_list(built, cache)
    copy_font_list(built, other)
    assert [path.name for path in cache.iterdir()] == ["fontlist-v1.json"]
    assert list(other.iterdir()) == []
    (cache / "fontlist-v1.json").write_text("newer")
    copy_font_list(built, cache)
    assert (cache / "fontlist-v1.json").read_text() == "newer"
