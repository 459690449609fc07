"""The cache's reading of questions: when two are one, and when an answer must not be kept at all.

Vectors cannot tell a question from its opposite (cosine 0.83 to 0.99, GPTCache issue 694), so they never decide alone.
The gate is an allow list: two questions must say the same words in the same order; only politeness and the few words
listed here may differ. A word that it does not know is taken for a table, a host or a negation.
"""

from __future__ import annotations

import re
import unicodedata

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_VERBATIM = re.compile(  # code and quotes; SQL to the end; options (-A is not -a); paths and addresses
    r"""(```.*?```|`[^`]*`|"[^"]*"|“[^”]*”|‘[^’]*’|「[^」]*」|『[^』]*』|(?<!\w)'[^']*'(?!\w)
    |\b(?:select\b.*\bfrom\b|insert\s+into\b|delete\s+from\b|update\b.*\bset\b
         |(?:create|alter|drop|truncate)\s+(?:table|index|view|schema|database)\b).*?(?=[\s?!.…。;？！]*$)
    |(?<!\S)-{1,2}[a-zA-Z][\w-]*|(?<![\w/])[~.]{0,2}/[^\s,;?!`"'。，？！]+|\w+://[^\s,;?!`"'。，？！]+)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_MIXED = re.compile(  # orderItems, Order_Items; 100 Mb is not 100 MB, 5 M is not 5 m
    r"((?<![^\W_])(?=\w*[a-z])[a-zA-Z]\w*[A-Z]\w*|(?<=\d)\s?(?:[KMGT]b|M)\b)"
)
_PRODUCTS = re.compile(
    r"(?i:(?:postgre|my|no)?sql|(?:maria|mongo|inno)db|git(?:hub|lab)|rabbitmq|clickhouse|pgbouncer|haproxy)|[A-Z]+s"
)
_SCRIPTS = ("<super>", "<sub>", "<fraction>", "<circle>", "<square>")  # 10² is not 102
_CLOSING = re.compile(r"""(?<=[\w\s)\]}"'`”’」%+])[\s?!.…。;,:~]+$""")  # but "$?" is not "$!"
_COMMA = re.compile(  # before a new clause it is a matter of taste; "web, worker" may not be "web worker"
    r"(?<![不别没否])(?<!\bno)(?<!not)(?<!n't)(?<!\byes),(?=\s*(?:why|what|which|who|where|when|how|is|are|do|does|can"
    r"|please|and|or|but|then|so|if|thanks?)\b|\s*(?:为什么|怎么|如何|什么|哪|请|谢谢|应该|是否|有没有))"
)
_MOMENT = re.compile(  # the clock, and what is true for one person alone
    r"""\b(?:now|nowadays|to(?:day|night|morrow)|yesterday|current(?:ly)?|latest|newest|(?:most[ ])?recent(?:ly)?|last
    |past|previous(?:ly)?|next|this[ ](?:second|minute|hour|morning|afternoon|evening|week|month|quarter|year)|ago|since
    |so[ ]far|at[ ](?:present|the[ ]moment)|these[ ]days|as[ ]of|up[ ]to[ ]date|real[ -]?time|live|still|yet|already
    |just|uptime|how[ ]long[ ]ha(?:s|ve)|how[ ]old|ha(?:s|ve)[ ]been|(?:mon|tues|wednes|thurs|fri|satur|sun)days?
    |what(?:'s|[ ]is)?[ ](?:the[ ])?(?:time|day|date|month|year)|my|mine|myself|i'm|i've|i[ ](?:am|have|did|was)
    |(?<!how[ ])(?<!where[ ])(?:do|did|can|could|may|have|am|was)[ ]i)\b|我[的是有能在]|我可以|[现現]在
    |今|昨|明[天早晚日年]|[前后後][天日]|[当當目]前|此刻|刚|剛|最近|近[日期来來\d一二两三几]|最[新后後]|过去|過去|[几幾][点點号號]|[星礼禮]期[几幾]
    |周[几一二三四五六日末]|星期[一二三四五六日天]|[上本这這下]个?個?[周月季年次回]|去年|截[至止]|以来|以來|[实實][时時]|眼下|[还還]在
    |已[经經]|多久了|[\d一二两三几](?:秒|分钟|分鐘|小时|小時|天|周|月|年)[之以]?[前内內]""",
    re.VERBOSE,
)
_REWRITES = tuple(
    (re.compile(pattern), instead)
    for pattern, instead in (
        (r"\b(?:can't|cannot)(?!\w)", "can not"),
        (r"\bwon't(?!\w)", "will not"),
        (r"n't(?!\w)", " not"),
        (r"\b(what|that|it|there|how|who|where|when|why)'s(?!\w)", r"\1 is"),
        (
            r"^(?:(?:(?:hi|hello|hey)(?: there| team| hermod)?|please|pls|kindly|(?:can|could) you|tell me|do you know"
            r"|i(?: would|'d) like to know|i (?:want|need) to know|你好|您好"
            r"|请问|請問|[请請](?![求教])|麻烦你?|帮我|告诉我)"
            rf"(?:[,:!\s]+|(?<=[{_CJK}])))+",
            "",
        ),
        (r"[,.!?;:~。\s]*(?:(?<=[\s,])(?:please|pls|thanks|thank you|thx)|谢谢你?|謝謝|多谢|呢|呀)[,.!?;:~。\s]*$", ""),
        (r"^(?:show me|list|display)(?= )|^(?:列出|显示|展示|看看|看一下|查看)", "show"),
        (r"\bhow (?:do|can) (?:i|we|you|one) ", "how to "),
        (r"如何|怎样", "怎么"),
        (r"为何|为啥", "为什么"),
        (r"一下|(?<![目别有真似是])的", ""),
        (r"(?<!\S)(\d+(?:\.\d+)?)([a-z%]+)(?!\S)", r"\1 \2"),
    )
)
_WORDS = {"the": "", "an": "", "please": "", "are": "is", "does": "do", "i": "we", "k8s": "kubernetes"}
_WORDS |= {"postgres": "postgresql", "big": "large", "bigger": "larger", "biggest": "largest"}


def normalise(text: str) -> str:
    """Return ``text`` as the exact tier compares it: NFKC; case, white space and closing punctuation evened out.

    Code, quoted text, SQL, paths and options stay as they are, and words of mixed case (``orderItems``) keep theirs:
    ``Users`` and ``users`` can be two tables. Outside these a capital is taken for prose.
    """
    parts = _VERBATIM.split(text.strip())
    return _CLOSING.sub("", "".join(part if n % 2 else _even(part) for n, part in enumerate(parts))).strip()


def is_momentary(text: str) -> bool:
    """Say whether an answer holds only now or only for who asked: "latest", "last 5 minutes", "my", 现在, 最近.

    A word list: it says yes too often ("live", "since") and sees no present tense; the time to live bounds that.
    """
    return _MOMENT.search(_even(text).casefold()) is not None


def same_question(first: str, second: str) -> bool:
    """Say whether an answer to one may serve the other; in doubt it may not.

    Numbers, units, identifiers, hosts, tables, environments, negations, comparisons, times and question words must be
    equal and in the same order, and so must every other word that this module does not list.
    """
    words = _words(first)
    return any(words) and words == _words(second)


def _even(prose: str) -> str:
    marked = "".join(
        "^" + c if unicodedata.decomposition(c).startswith(_SCRIPTS) else c for c in prose.replace("’", "'")
    )
    kept = "".join(c for c in unicodedata.normalize("NFKC", marked) if unicodedata.category(c) != "Cf")
    cased = enumerate(_MIXED.split(kept))
    even = "".join(part if n % 2 and not _PRODUCTS.fullmatch(part) else part.casefold() for n, part in cased)
    even = re.sub(r"\s+", " ", even)
    return _COMMA.sub("", re.sub(rf"(?<=[{_CJK}]) | (?=[{_CJK}])", "", even))


def _words(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that count, with a mark where something verbatim stood, and the verbatim parts."""
    parts = _VERBATIM.split(normalise(text))
    prose = " \ue000 ".join(parts[::2]).strip()
    for pattern, instead in _REWRITES:
        prose = pattern.sub(instead, prose)
    pieces = re.findall(rf"[{_CJK}]|[^\s{_CJK}]+", prose)
    return tuple(word for piece in pieces if (word := _WORDS.get(piece, piece))), tuple(parts[1::2])
