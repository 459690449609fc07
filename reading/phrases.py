"""What the offline provider says, in English and Chinese."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reading.spec import Spec
from reading.words import first_sentence

_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|hiya|howdy|yo|good\s+(?:morning|afternoon|evening|day)|greetings|你好|您好|嗨|哈喽|早上好|下午好|晚上好|早)"
    r"(?:\s+(?:there|all|team|bot|hermod|everyone))?\W*$",
    re.IGNORECASE,
)
_THANKS = re.compile(
    r"^\W*(?:ok(?:ay)?\W+)?(?:(?:many\s+|great\W+)?thanks?(?:\s+(?:you|a\s+lot|so\s+much|very\s+much|again|bot|hermod|a\s+million))*|thx|ty|cheers|perfect|great|nice|cool|got\s+it"
    r"|谢谢(?:你|您|啦|了)?|多谢|感谢|辛苦了|好的|收到)\W*$",
    re.IGNORECASE,
)
_HELP = re.compile(
    r"^\W*(?:help(?:\s+me)?|/?help|\?+|what\s+(?:can|do|could)\s+you\s+(?:do|help\b.*|offer|know)|what\s+can\s+i\s+(?:ask|do)\b.*|how\s+do(?:es)?\s+(?:you|this)\s+work"
    r"|(?:list|show)\s+(?:me\s+)?(?:your\s+|the\s+|all\s+)?(?:tools|commands)|commands|tools|who\s+are\s+you|what\s+are\s+you"
    r"|帮助|你?(?:能|会|可以)(?:做|干|帮我做)?(?:些)?(?:什么|啥|哪些事)|有什么功能|有哪些(?:工具|功能)|怎么用|你是谁)\W*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """The fixed sentences of one language. ``{...}`` is filled in."""

    no_model: str
    no_model_calls: str
    greeting: str
    thanks: str
    overview: str
    no_match: str
    no_tools: str
    missing: str
    unclear: str
    no_rows: str
    example: str
    reworded: str
    labels: Mapping[str, str]


ENGLISH = Phrases(
    no_model="_No language model was used; I only match words to tools._",
    no_model_calls="_No language model was used; I matched your words to {calls}._",
    greeting="Hello. This is what I can do:",
    thanks="You are welcome.",
    overview="This is what I can do:",
    no_match="I could not match that to any of my tools, so I did nothing. This is what I can do:",
    no_tools="No tools are available to me here, so I cannot look anything up or work anything out.",
    missing="To use `{tool}` I still need {slots}.",
    unclear="I cannot place {words} as an exact time. Say for example `last 30 minutes`, `last 2 hours`, `today`, "
    "`yesterday` or `2026-01-31T08:00:00Z/2026-01-31T09:00:00Z`.",
    no_rows="I found no earlier result in this thread with such a row.",
    example="For example: {question}",
    reworded="Also, a part of your message needs more:",
    labels={},
)
CHINESE = Phrases(
    no_model="_未使用语言模型；我只按词语匹配工具。_",
    no_model_calls="_未使用语言模型；我按词语匹配到了 {calls}。_",
    greeting="你好。我能做这些：",
    thanks="不客气。",
    overview="我能做这些：",
    no_match="这句话没有匹配到任何工具，所以我什么也没有做。我能做这些：",
    no_tools="这里没有可用的工具，所以我无法查询或计算。",
    missing="要使用 `{tool}`，还需要{slots}。",
    unclear="我无法确定“{words}”是哪段时间。请改说“最近30分钟”、“最近2小时”、“今天”、“昨天”，"
    "或 `2026-01-31T08:00:00Z/2026-01-31T09:00:00Z`。",
    no_rows="本线程之前的结果里没有这一行。",
    example="例如：{question}",
    reworded="另外，您的消息还有一部分需要补充：",
    labels={
        "Window": "时间窗口",
        "asked for": "请求的是",
        "Not fully covered": "未完全覆盖",
        "Warning": "警告",
        "What to do": "处理办法",
        "No rows.": "没有符合条件的行。",
        "more row": "行未显示",
        "more rows": "行未显示",
        "more columns": "列未显示",
        "rows without numbers": "行没有数据",
        "durations are": "时长含义",
        "Failed": "失败",
        "Empty result.": "结果为空。",
        "The result was cut.": "结果被截断。",
    },
)


def small_talk(text: str) -> str | None:
    """Tell whether a whole message is a greeting, thanks or a call for help: ``greeting``, ``thanks``, ``overview``."""
    for name, pattern in (("greeting", _GREETING), ("thanks", _THANKS), ("overview", _HELP)):
        if pattern.match(text.strip()):
            return name
    return None


def list_tools(tools: Sequence[Spec], *, chinese: bool) -> str:
    """Render one line a tool: its name, the first sentence of its description, one example in the asker's language."""
    lines = []
    for spec in tools:
        headline = first_sentence(spec.description)
        headline = headline if len(headline) <= 160 else headline[:159].rsplit(" ", 1)[0] + " …"
        questions = [e.question for e in spec.examples]
        fitting = [q for q in questions if bool(re.search(r"[\u4e00-\u9fff]", q)) == chinese] or questions
        example = f" — “{' '.join(fitting[0].split())}”" if fitting else ""
        lines.append(f"- `{spec.name}`: {headline}{example}")
    return "\n".join(lines)
