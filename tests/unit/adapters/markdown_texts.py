"""Texts to try rendering with: documents whose words are all different, and things that went wrong elsewhere."""

from __future__ import annotations

import re

from hypothesis import strategies as st

PINGS = "<!channel> <!here|x> <!everyone> <!subteam^S1|@dbas> <@U2> <#C1|ops> <!date^1^{date}|x> @here @channel"

CONSTRUCTS = (
    "{}",
    "# {}",
    "### {}",
    "**{}** _{}_ ~~{}~~ ***{}***",
    "`{}`",
    "``{}``",
    "```\n{}\n```",
    "~~~sql\n{}",
    "    {}",
    "> {}\n> > {}",
    "- {}\n  1. {}\n     > {}",
    "- ```\n  {}\n  ```",
    "[{}](https://ex.test)",
    "![{}](https://ex.test)",
    "[x]({}) [x](!channel) [x](<!here>) [x](@U2) [x](#C1)",
    "[a](https://ex.test/{}) [b](<https://ex.test/ {}>)",
    "[r]\n\n[r]: https://ex.test/?a={} '{}'",
    "[r]: !here\n\n[r] [x][r]",
    "\\{}",
    "*a{}b*",
    "a\\\n{}",
)
"""Every construct of Markdown, to be filled with what must not come through."""

NASTY = (
    "",
    " \n\t\n",
    "\0\0",
    "&lt;!channel&gt; &#60;!here&#62; \\<!channel\\> &#x202e;abc",
    "<<!channel>> <!<!here>> <@<@U1>>",
    "`` ` `` ```` ``` ```` ```a",
    "| a | b |\n|---|---|\n| <!channel> | `<@U2>` |\n| | **x** |\n| [<!here>](https://ex.test) | <!here> |",
    "|a|\n|-|\n||",
    "| | |\n|---|---|\n| Status | Open |\n| Owner | |",
    "- \n-\n- - - a\n0. zero\n1. one",
    "> \n>\n> - a\n>   > b\n\n***\n___\n# \n## #",
    "[a `b](https://good.test) `[good.test](https://evil.test)`",
    "[a](https://ex.test/" + "a" * 4000 + ")",
    "x" * 13_000,
    "\u202eevil.exe\u202c \u2066a\u2069 \u200b",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 " * 40,
    "**Status:**OK です**強調**です 字**「注」**字 __init__ 2 * 3 * 4 snake_case_name",
    "\u05e9\u05dc\u05d5\u05dd \u2014 3 errors (12:00)",
    "\n".join("> " * n + "deep" for n in range(60)),
    "\n".join("  " * n + "- deep" for n in range(60)),
    "```\n" + "```".join("x" * 5) + "\n",
    ":smile: 12:30:45 :100:",
    "a\rb\r\nc\vd\fe\u2028f",
    "\ud800",
)

MARKUP = st.lists(
    st.sampled_from(
        [
            *"ab <>!@#&;|*_~`[]()-+.:/\\\n1UC\"'=\u4e2d\U0001f600\u05d0",
            "<!channel>",
            "<@U1>",
            "<@U2>",
            "<!subteam^S1>",
            "```",
            "| a | b |\n|--|--|\n",
            "https://ex.test/",
            "](",
            "[r]: !here\n",
            "\n\n",
            "- ",
            "> ",
            "**",
            "@here",
            "\u202e",
            "\u200d",
            "\r",
        ]
    ),
    max_size=80,
).map("".join)


def words(n: int, start: int = 0) -> list[str]:
    """Unique words in capitals, which nothing else in the test texts uses."""
    return ["W" + f"{start + i:05d}".translate(str.maketrans("0123456789", "ABCDEFGHIJ")) for i in range(n)]


def capitals(text: str) -> str:
    return "".join(re.findall(r"[A-Z]", text))


def balanced(part: str) -> bool:
    """Every fence that the part opens is closed in it."""
    open_marker = ""
    for line in part.split("\n"):
        found = re.match(r"[ >\-*0-9.)]*?(`{3,}|~{3,})(.*)$", line)
        if not found:
            continue
        if not open_marker:
            open_marker = found[1]
        elif found[1].startswith(open_marker) and not found[2].strip():
            open_marker = ""
    return not open_marker


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Texts of many blocks in which every word is unique, so that a lost or doubled one shows."""
    count = [0]

    def some(low: int, high: int) -> list[str]:
        n = draw(st.integers(low, high))
        count[0] += n
        return words(n, count[0] - n)

    def paragraph() -> str:
        marks = st.sampled_from(
            ["{}", "*{}*", "**{}**", "`{}`", "{}.", "[{}](https://x.test)", "~~{}~~", "<{}>", "{} #"]
        )
        return draw(st.sampled_from([" ", "\n"])).join(draw(marks).format(w) for w in some(1, 60))

    def block(depth: int) -> str:
        kind = draw(st.sampled_from(["p", "code", "list", "quote", "table", "h", "long"]))
        match kind:
            case "code":
                lang = draw(st.sampled_from(["", "py", "sql"]))
                return (
                    f"```{lang}\n" + "\n".join(" ".join(some(0, 9)) for _ in range(draw(st.integers(1, 12)))) + "\n```"
                )
            case "list" if depth < 3:
                mark = draw(st.sampled_from(["-", "1."]))
                items = []
                for _ in range(draw(st.integers(1, 4))):
                    lines = [paragraph() if draw(st.booleans()) else " ".join(some(1, 5))]
                    if draw(st.booleans()):
                        lines.append(block(depth + 1))
                    pad = " " * (len(mark) + 1)
                    items.append(f"{mark} " + "\n\n".join(lines).replace("\n", "\n" + pad))
                return "\n".join(items)
            case "quote" if depth < 3:
                return "> " + block(depth + 1).replace("\n", "\n> ")
            case "table" if depth == 0:
                rows = ["| " + " | ".join(some(2, 2)) + " |" for _ in range(draw(st.integers(1, 15)))]
                return "\n".join(["| head | tail |", "|---|---|", *rows])
            case "h":
                return "## " + " ".join(some(1, 4))
            case "long":
                return "".join(some(5, 40))
            case _:
                return paragraph()

    return "\n\n".join(block(0) for _ in range(draw(st.integers(1, 6))))
