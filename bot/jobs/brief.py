"""What a report is to be about, before anybody works on it: its task and plan, from a template and a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from adapters.chat import Author
from agent_core.supervisor import Assignment
from agent_core.workers import Worker
from bot.jobs.job import SETTINGS_OWNER, Firing
from bot.jobs.templates import Part, Period, ReportTemplate, fill
from reading.words import has_chinese

MOST_REQUESTS = 90
"""Of a plan without a model; with more, the requests of an assignment are one."""

_FORM = """How the report is laid out:
- First at most three short lines that stand alone in a channel: what matters most, each with its mark [worker:id]. No
  title, no table and no code there.
- Then a line that is only ---
- Then the body in Markdown, without a title, each statement with its mark.
- Where nothing needs attention, a single line that says so, and nothing else.
- In the language of what was asked for."""
_SUGGESTED = (
    "Assignments that such a report usually has; leave out what it does not need. One that is marked as last depends "
    "on all the others:"
)
ENGLISH: Mapping[str, str] = {
    "until": "to",
    "owner_gone": "The report {job} was not made: {owner}, with whose rights it runs, is no longer here. I have paused "
    "the job. Somebody who wants it resumes it, and becomes its owner by changing it.",
    "channel_gone": "The report {job} was not made: its channel {place} is gone. I have paused the job; change its "
    "channel and resume it, or delete it.",
    "owner_reason": "its owner {owner} is gone",
    "channel_gone_reason": "its channel {place} is gone",
    "channel_closed": "The report {job} was not made: I may not post in its channel {place}. I have paused the job; "
    "mend that and resume it.",
    "channel_closed_reason": "Hermod may not post in its channel {place}",
    "denied": "The report {job} was not made, since {owner}, with whose rights it runs, may not have it: {reason}. "
    "I have paused the job.",
    "no_template": "The report {job} was not made: there is no template {name!r}; known are {known}.",
    "no_workers": "The report {job} was not made: none of its workers is there; known are {known}.",
    "no_targets": "The report {job} was not made: no target is open to this channel; ask the operator of Hermod to "
    "open one.",
    "no_model": "no language model answered",
    "failed": "The report could not be made: {reason}. (run {run_id})",
    "stopped": "The report {job} was stopped by {by}; nothing of it is posted. Its next time stays as it was.",
    "operator": "the operator",
}
CHINESE: Mapping[str, str] = {
    "until": "至",
    "owner_gone": "报告 {job} 没有生成：它以 {owner} 的权限运行，而此人已不在。任务已暂停，"
    "需要的人可以修改它（从而成为负责人）并恢复。",
    "channel_gone": "报告 {job} 没有生成：频道 {place} 已不存在。任务已暂停；请更换频道后恢复，或删除它。",
    "owner_reason": "负责人 {owner} 已不在",
    "channel_gone_reason": "频道 {place} 已不存在",
    "channel_closed": "报告 {job} 没有生成：我无法在频道 {place} 发布。任务已暂停；请处理后恢复。",
    "channel_closed_reason": "Hermod 无法在频道 {place} 发布",
    "denied": "报告 {job} 没有生成：它以 {owner} 的权限运行，而其无权获得该报告：{reason}。任务已暂停。",
    "no_template": "报告 {job} 没有生成：没有模板 {name!r}；现有 {known}。",
    "no_workers": "报告 {job} 没有生成：没有可用的工作者；现有 {known}。",
    "no_targets": "报告 {job} 没有生成：此频道没有开放任何目标；请联系 Hermod 的管理员。",
    "no_model": "没有语言模型作答",
    "failed": "报告没有生成：{reason}。（run {run_id}）",
    "stopped": "报告 {job} 已被{by}停止，不会发布任何内容；下次时间不变。",
    "operator": "管理员",
}


def choose_words(task: str) -> Mapping[str, str]:
    """Return what is said about reports, in the language of a task."""
    return CHINESE if has_chinese(task) else ENGLISH


def tell_stopped(firing: Firing, by: Author) -> str:
    """Say in a report's channel who stopped it."""
    words = choose_words(firing.spec.task)
    return words["stopped"].format(job=firing.job, by=words["operator"] if by == SETTINGS_OWNER else by.name or by.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A report before anybody works on it.

    Args:
        firing, template: what was asked for, and how such a report is made.
        targets, workers: that it has.
        values: fill the template.
        words: in the language of the task.
    """

    firing: Firing
    template: ReportTemplate
    targets: tuple[str, ...]
    workers: Mapping[str, Worker]
    values: Mapping[str, str]
    words: Mapping[str, str]

    @property
    def chinese(self) -> bool:
        """True where its fixed words are Chinese."""
        return self.words is CHINESE

    @property
    def title(self) -> str:
        """The first line: what it is, of which targets, and which time."""
        name = fill(self.template.title_zh if self.chinese else self.template.title, self.values)
        return " · ".join([f"**{name}**", self.values["targets"], self.values["span"]])


def write_span(period: Period, until: str) -> str:
    """Write a period for people, in its zone."""
    zone = ZoneInfo(period.zone)
    start, end = period.start.astimezone(zone), period.end.astimezone(zone)
    return f"{start:%Y-%m-%d %H:%M} {until} {end:%Y-%m-%d %H:%M} ({period.zone})"


def _each(brief: Brief, part: Part) -> list[dict[str, str]]:
    if part.when != "each target":
        return [dict(brief.values)]
    return [{**brief.values, "target": target} for target in brief.targets]


def write_task(brief: Brief) -> str:
    """Write what the supervisor is asked: the template's text, its assignments, and how the report is laid out."""
    lines = [
        f"- {part.worker}{', last' if part.when == 'last' else ''}: {fill(part.text, values)}"
        for part in brief.template.parts
        if part.worker in brief.workers
        for values in _each(brief, part)
    ]
    suggested = "\n".join([_SUGGESTED, *lines]) if lines else ""
    return "\n\n".join(filter(None, [fill(brief.template.rules, brief.values), suggested, _FORM]))


def build_plan(brief: Brief) -> tuple[Assignment, ...]:
    """Build the assignments of a report that no model divides: the template's requests, by workers that have the tools.

    Where there are none, each worker that has tools gets what people asked for, in their words.
    """
    asked: list[tuple[str, list[str]]] = []
    for part in brief.template.parts:
        for values in _each(brief, part):
            by_worker: dict[str, list[str]] = {}
            for request in part.requests:
                if worker := _find_worker(brief, part.worker, request.split(maxsplit=1)[0]):
                    by_worker.setdefault(worker, []).append(fill(request, values))
            asked += by_worker.items()
    single = [(worker, request) for worker, requests in asked for request in requests]
    if len(single) > MOST_REQUESTS:
        single = [(worker, "\n".join(requests)) for worker, requests in asked][:MOST_REQUESTS]
    single = single or [(name, brief.values["task"]) for name, worker in brief.workers.items() if worker.agent.tools]
    return tuple(Assignment(id=f"a{n}", worker=worker, task=task) for n, (worker, task) in enumerate(single, 1))


def _find_worker(brief: Brief, wanted: str, tool: str) -> str:
    """Return the wanted worker if it has a tool, else the first one that has; empty where nobody has it."""
    able = [name for name, worker in brief.workers.items() if tool in (worker.agent.tools or ())]
    return wanted if wanted in able else next(iter(able), "")
