"""The fixed words of a report, and how it writes times: for people, in the zone of its job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from reading.cells import is_code
from reading.phrases import CHINESE as CHINESE_PHRASES
from reading.phrases import ENGLISH as ENGLISH_PHRASES

_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(?:\.\d+)?(?:Z|\+00:00)")
_BORDERS = ("start", "end", "asked_start", "asked_end")
ENGLISH: Mapping[str, str] = {
    "quiet": "nothing to report",
    "offline": "Written without a language model: these are numbers that nobody has weighed.",
    "offline_short": "written without a language model",
    "unwritten": "The findings are listed as they are, since nobody could put them together: {reason}.",
    "gaps_short": "{gaps} of {all} parts came to nothing; the thread says why.",
    "gaps_partly": "{gaps} of {all} parts came to nothing or broke off; the thread says why.",
    "more_targets": "… and {count} more in the thread.",
    "gaps": "Not found out",
    "dropped": "(Marks that name no finding were removed: {labels}.)",
    "sources": "Sources",
    "rests_on": "written from {labels}",
    "statements": "statements",
    "partly": "partly covered",
    "uncovered": "tool calls: {all}, of which {count} did not cover the whole time",
    "queries": "tool calls: {count}",
    "unusual": "nothing unusual",
    "elsewhere": "Other",
    "no_history": "nothing to compare with yet, since too little is stored of earlier times",
    "unsupported": "not for this kind of target",
    "nothing_for": "nothing in this report is for this kind of target",
    "against": "against {range}",
    "get_slow_queries": "Slow statements",
    "compare_windows": "What moved",
    "index_health": "Indexes",
    "table_health": "Tables",
    "db_health": "Server",
    "running_queries": "Running now",
    "blocking_tree": "Who waits for whom",
    "n_get_slow_queries": "{n} slow statement(s), the slowest {worst} a call",
    "n_maybe_slow": "{n} statement(s) may have been slow, {worst} at most",
    "n_compare_windows": "{n} statement(s) moved {against}",
    "regressed": "{n} regressed",
    "new": "{n} new",
    "improved": "{n} improved",
    "gone": "{n} gone",
    "a_call": "{before} → {after} a call",
    "n_index_health": "{n} index finding(s)",
    "n_table_health": "{n} table(s) with findings",
    "n_db_health": "{n} server check(s) warn",
    "n_running_queries": "{n} long running statement(s)",
    "n_blocking_tree": "{n} session(s) wait for locks",
}
CHINESE: Mapping[str, str] = {
    "quiet": "没有需要报告的内容",
    "offline": "以下内容未使用语言模型：仅列出数字，未经评估。",
    "offline_short": "未使用语言模型",
    "unwritten": "无法把各项发现汇总成文，因此原样列出：{reason}。",
    "gaps_short": "{all} 项中有 {gaps} 项没有结果，原因见线程。",
    "gaps_partly": "{all} 项中有 {gaps} 项没有结果或中途停止，原因见线程。",
    "more_targets": "……另有 {count} 个见线程。",
    "gaps": "未能查明",
    "dropped": "（已删除不对应任何发现的引用标记：{labels}。）",
    "sources": "来源",
    "rests_on": "依据 {labels}",
    "statements": "语句",
    "partly": "未完全覆盖",
    "uncovered": "工具调用：{all}，其中 {count} 次未覆盖整个时间段",
    "queries": "工具调用：{count}",
    "unusual": "没有异常",
    "elsewhere": "其他",
    "no_history": "更早时间的记录还不够，暂时无法对比",
    "unsupported": "不适用于这类目标",
    "nothing_for": "本报告的各项检查都不适用于这类目标",
    "against": "对比 {range}",
    "get_slow_queries": "慢语句",
    "compare_windows": "变化",
    "index_health": "索引",
    "table_health": "表",
    "db_health": "服务器",
    "running_queries": "正在运行",
    "blocking_tree": "锁等待",
    "n_get_slow_queries": "{n} 条慢语句，最慢的每次 {worst}",
    "n_maybe_slow": "{n} 条语句可能曾经较慢，最长 {worst}",
    "n_compare_windows": "{n} 条语句{against}有变化",
    "regressed": "{n} 条变慢",
    "new": "{n} 条新出现",
    "improved": "{n} 条变快",
    "gone": "{n} 条消失",
    "a_call": "每次 {before} → {after}",
    "n_index_health": "{n} 个索引问题",
    "n_table_health": "{n} 张表有问题",
    "n_db_health": "{n} 项服务器检查告警",
    "n_running_queries": "{n} 条长时间运行的语句",
    "n_blocking_tree": "{n} 个会话在等锁",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """How a report says things: its fixed words, those of laid out results (``labels``), and the zone of its times."""

    words: Mapping[str, str]
    labels: Mapping[str, str]
    zone: ZoneInfo

    @staticmethod
    def choose(*, chinese: bool, zone: str) -> Wording:
        """Choose the words of a language; ``zone`` is an IANA name."""
        words, phrases = (CHINESE, CHINESE_PHRASES) if chinese else (ENGLISH, ENGLISH_PHRASES)
        return Wording(words=words, labels=phrases.labels, zone=ZoneInfo(zone))

    def __getitem__(self, key: str) -> str:
        return self.words[key]

    def say(self, key: str, n: int, **values: str) -> str:
        """Say how many of something there are."""
        return self.words[key].format(n=n, **values).replace("(s)", "" if n == 1 else "s")

    def write_range(self, text: str) -> str:
        """Write a time range for people: ``2026-03-01 09:00 – 2026-03-02 09:00``; words stay as they are."""
        return self.write_times(text, minutes=True).replace("/", " – ") if _INSTANT.search(text) else text

    def write_times(self, text: str, *, minutes: bool = False) -> str:
        """Write the UTC instants in a text in the zone; ``minutes``: without their seconds."""

        def write(m: re.Match[str]) -> str:
            try:
                at = datetime.fromisoformat(m[1]).replace(tzinfo=UTC).astimezone(self.zone)
            except (ValueError, OverflowError):
                return m[0]
            return f"{at:%Y-%m-%d %H:%M}" if minutes or not at.second else f"{at:%Y-%m-%d %H:%M:%S}"

        return _INSTANT.sub(write, text)

    def convert(self, key: str, value: object) -> object:
        """Return a result, or its part under ``key``, with its times in the zone; code stays as it is."""
        if isinstance(value, Mapping):
            return {k: self.convert(str(k), v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.convert(key, v) for v in value]
        if isinstance(value, str) and not is_code(key):
            return self.write_times(value, minutes=key in _BORDERS)
        return value
