"""What people may do to jobs from a chat, whichever way they ask: by words, by tools, by commands.

A new job, an edit and a deletion are proposals first: they are checked, shown, and done when the same person confirms
them in the same place. Pausing, resuming, running now and stopping a report are done at once; anybody of the job's
channel may do so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapters.chat import COMMAND_THREAD, Author, ThreadRef
from agent_core.context import Clock
from agent_core.tools.base import Effect
from bot.access import AccessAction, AccessPolicy, Caller, Speak, UseTarget, UseTool, decide
from bot.audit import AuditLog
from bot.jobs.draft import find_free_name
from bot.jobs.job import Firing, JobSpec, parse_place
from bot.jobs.keeping import Asker, BadJob, CheckedJob, JobDraft, JobKeeper, read_spec
from bot.jobs.proposals import PROPOSAL_S, Decision, Wanted, dump_wanted, load_wanted
from bot.jobs.telling import tell_changed, tell_deleted, tell_made, tell_others
from bot.jobs.wishes import JobWish, apply_edit, build_name, find_zone, read_when
from bot.storage.base import Store
from bot.storage.jobs import JobRow, JobRunRow, Proposal

SCHEDULE, LIST, CHANGE = "schedule_report", "list_jobs", "change_job"
"""The tools; ``[access] tools`` names them, also where a command does the same."""

MOST_LISTED = 50
RUNS_LOOKED_AT = 5
EXPIRED = (
    f"Nothing has changed: what I proposed to you here waited for {PROPOSAL_S / 60:g} minutes. Please ask me again."
)

_ADDRESSED = re.compile(
    r"(?:(?P<platform>[a-z]+):)?(?:(?P<workspace>[A-Za-z0-9._-]+)/)?(?P<channel>[A-Za-z0-9][A-Za-z0-9._-]*)"
)
_NAME = re.compile(r"[a-z0-9_-]{1,63}", re.IGNORECASE)
_LINKED = re.compile(r"<#([A-Za-z0-9]+)(?:\|[^>]*)?>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Who asks for something about jobs, and where."""

    thread: ThreadRef
    author: Author

    @property
    def place(self) -> str:
        """The channel, as jobs have it."""
        return f"{self.thread.platform}:{self.thread.workspace}/{self.thread.channel}"

    @property
    def asker(self) -> Asker:
        """Who asks, as jobs have it."""
        return Asker.of(self.thread, self.author)

    @property
    def slash(self) -> bool:
        """True for a slash command in a channel: it stands in no thread where one could answer."""
        return self.thread.thread.startswith(COMMAND_THREAD)

    @property
    def key(self) -> str:
        """Where a proposal waits: in the thread; for a slash command in the channel, for the next one."""
        return replace(self.thread, thread=f"{COMMAND_THREAD}jobs").key if self.slash else self.thread.key

    def at(self, place: str) -> Caller:
        """The same person as somebody who speaks in another place."""
        platform, workspace, channel = parse_place(place)
        thread = ThreadRef(platform=platform, workspace=workspace, channel=channel, thread=self.thread.thread)
        return Caller.of(thread, self.author)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job with its newest time; ``run`` is None before the first one."""

    row: JobRow
    run: JobRunRow | None


class JobDesk:
    """Takes what people want of jobs. Safe to use concurrently.

    Every method raises ``BadJob`` with words for the person, and ``StoreError`` when the storage cannot be used.

    Args:
        store: keeps proposals.
        keeper: checks and changes jobs.
        clock: time.
        policy: who may do what where.
        prefix: of Slack's slash commands (``[slack] command_prefix``).
    """

    def __init__(
        self, store: Store, keeper: JobKeeper, clock: Clock, *, policy: AccessPolicy, prefix: str = ""
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._clock = clock
        self._policy = policy
        self._prefix = prefix
        self._audit = AuditLog(store, clock)

    def now(self) -> datetime:
        """The time that "next" is counted from."""
        return self._clock.now()

    # -- looking -------------------------------------------------------------------------------------

    async def list(self, asking: Asking) -> tuple[ListedJob, ...]:
        """The jobs of the channel, and the person's own in others, by name."""
        self._require(asking, LIST)
        rows = [row for row in await self._store.list_jobs() if is_open_to(row, asking)]
        return tuple([await self._look(row) for row in rows[:MOST_LISTED]])

    async def find(self, asking: Asking, name: str) -> ListedJob:
        """One of them."""
        self._require(asking, LIST)
        return await self._look(await self._find(asking, name))

    # -- at once -------------------------------------------------------------------------------------

    async def pause(self, asking: Asking, name: str) -> JobRow:
        """Pause a job."""
        row = await self._find_to_change(asking, name)
        by = asking.asker
        return await self._keeper.pause(row.name, f"paused by {by.name}", by=by, thread_key=asking.thread.key)

    async def resume(self, asking: Asking, name: str) -> JobRow:
        """Let a job fire again."""
        row = await self._find_to_change(asking, name)
        return await self._keeper.resume(row.name, by=asking.asker, thread_key=asking.thread.key)

    async def run_now(self, asking: Asking, name: str) -> Firing:
        """Have a report of a job made now, with the rights of the person who asks; one at a time."""
        row = await self._find_to_change(asking, name)
        self._check_targets(asking, row.place, read_spec(row))
        for run in await self._store.list_job_runs(row.job_id, limit=RUNS_LOOKED_AT):
            # also where a process died between doing this and saying so, and does it again
            if run.state in ("waiting", "running"):
                raise BadJob(f"a report of {row.name} is being made already, since {run.fired_at:%H:%M} UTC")
        return await self._keeper.run_now(row.name, author=asking.author, asked_in=asking.thread.key, by=asking.asker)

    async def stop(self, asking: Asking, name: str) -> JobRow:
        """End the report of a job that is being made, whoever asked for it; the job's next times stay."""
        row = await self._find_to_change(asking, name)
        return await self._keeper.stop(row.name, author=asking.author, by=asking.asker, thread_key=asking.thread.key)

    # -- proposals -----------------------------------------------------------------------------------

    async def propose_new(self, asking: Asking, wish: JobWish) -> CheckedJob:
        """Check a new job and keep it as the person's proposal in this place, instead of an earlier one."""
        self._require(asking, SCHEDULE)
        place = self._find_place(asking, wish.channel)
        when, task = read_when(wish)
        zone = find_zone(when, wish.timezone)
        spec = JobSpec(cron=when.cron, zone=zone, task=task, template=wish.template, targets=wish.targets)
        name = wish.name.strip() or await find_free_name(build_name(spec), self._is_taken)
        checked = await self._check(asking, JobDraft(place=place, spec=spec, name=name))
        await self._propose(
            asking, Wanted(action="make", name=checked.name, place=checked.place, spec=checked.spec), checked.place
        )
        return checked

    async def propose_change(self, asking: Asking, name: str, wish: JobWish) -> CheckedJob:
        """Check an edit of a job and keep it as the person's proposal; what the wish leaves out stays."""
        row = await self._find_to_change(asking, name)
        _check_chat(row)
        spec = apply_edit(read_spec(row), wish)
        place = self._find_place(asking, wish.channel) if wish.channel else row.place
        renamed = wish.name.strip().lower()
        if (spec, place, renamed or row.name) == (read_spec(row), row.place, row.name):
            raise BadJob(f"that changes nothing of {row.name}; say another time, task, channel, template or name")
        checked = await self._check(asking, JobDraft(place=place, spec=spec, name=renamed), of=row.name)
        await self._propose(
            asking,
            Wanted(
                action="change",
                name=row.name,
                place=checked.place,
                spec=checked.spec,
                renamed=renamed,
                job_id=row.job_id,
                revision=row.revision,
            ),
            checked.place,
        )
        return checked

    async def propose_delete(self, asking: Asking, name: str) -> JobRow:
        """Keep the deletion of a job as the person's proposal."""
        row = await self._find_to_change(asking, name)
        _check_chat(row)
        wanted = Wanted(action="delete", name=row.name, job_id=row.job_id, revision=row.revision)
        await self._propose(asking, wanted, row.place)
        return row

    async def decide(self, asking: Asking, decision: Decision) -> str | None:
        """Do, or drop, what waits for this person in this place; None when nothing waits there.

        The first word to a proposal that is too old is told so; to one of somebody else, whose word it needs.
        """
        asker = asking.asker
        found = await self._store.take_proposal(asking.key, asker.owner, after=datetime.min.replace(tzinfo=UTC))
        if found is None:
            others = await self._store.list_proposals(asking.key, after=self._last_expired())
            return tell_others(others) if others else None
        try:
            wanted = self._read_wanted(found)
        except BadJob as e:
            return str(e)
        if decision.name not in ("", wanted.name, wanted.renamed):
            await self._store.save_proposal(found)
            return (
                f"What waits for you here is about `{wanted.renamed or wanted.name}`, not `{decision.name}`; "
                "it still waits."
            )
        if decision.word == "cancel":
            await self._record("job.proposal_cancelled", asking, wanted.name, wanted.action, wanted.place)
            return f"Cancelled; nothing has changed ({wanted.action} `{wanted.name}`)."
        try:
            return await self._carry_out(asking, wanted)
        except BadJob as e:
            await self._record("job.proposal_failed", asking, wanted.name, wanted.action, wanted.place)
            return f"Not done, and nothing has changed: {e}. Please ask me again."

    def _last_expired(self) -> datetime:
        """When what has just expired was proposed."""
        return self._clock.now() - timedelta(seconds=PROPOSAL_S)

    def _read_wanted(self, found: Proposal) -> Wanted:
        if found.created_at <= self._last_expired():
            raise BadJob(EXPIRED)  # and no question: a model that is told "confirm" might say that it is scheduled
        try:
            return load_wanted(found.body)
        except ValueError:
            raise BadJob("I cannot read any more what waited here; please ask me again.") from None

    async def _carry_out(self, asking: Asking, wanted: Wanted) -> str:
        """Check everything again: other people, operators and platforms went on in the meantime."""
        by, key = asking.asker, asking.thread.key
        if wanted.action == "make":
            self._require(asking, SCHEDULE)
        else:
            row = await self._find_to_change(asking, wanted.name)
            if (row.job_id, row.revision) != (wanted.job_id, wanted.revision):
                raise BadJob(f"the job {row.name} was changed since you were shown it")
        if wanted.action == "delete":
            return tell_deleted(await self._keeper.delete(wanted.name, by=by, thread_key=key))
        if wanted.spec is None:
            raise BadJob("what was to be made cannot be read any more")
        draft = JobDraft(place=wanted.place, spec=wanted.spec, name=wanted.renamed or wanted.name)
        checked = await self._check(asking, draft, of="" if wanted.action == "make" else wanted.name)
        if wanted.action == "make":
            row = await self._keeper.make(checked, by=by, thread_key=key)
            return tell_made(row, checked, self.slash_of(asking))
        row = await self._keeper.change(wanted.name, checked, by=by, thread_key=key)
        return tell_changed(row, checked, self.slash_of(asking))

    def slash_of(self, asking: Asking) -> str:
        """How ``jobs`` is written where somebody asks: as a slash command, or as words to Hermod in the thread."""
        if not asking.slash:
            return "jobs"
        return f"/{self._prefix if asking.thread.platform == 'slack' else ''}jobs"

    # -- parts ---------------------------------------------------------------------------------------

    async def _check(self, asking: Asking, draft: JobDraft, *, of: str = "") -> CheckedJob:
        platform, workspace, _ = parse_place(draft.place)
        here = asking.thread
        if (platform, workspace) != (here.platform, here.workspace):
            raise BadJob(f"a job runs with your rights, so it posts where you are known; {draft.place} is elsewhere")
        self._allow(asking, draft.place, Speak())
        self._allow(asking, draft.place, UseTool(name=SCHEDULE, effect=Effect.READ))
        self._check_targets(asking, draft.place, draft.spec)
        checked = await self._keeper.check(draft, now=self._clock.now(), of=of)
        if checked.place == asking.place:
            return checked
        warning = (
            f"I cannot look up whether you are in {checked.channel or checked.place}; its people will see who asked"
        )
        return replace(checked, warnings=(*checked.warnings, warning))

    def _check_targets(self, asking: Asking, place: str, spec: JobSpec) -> None:
        for target in spec.targets:
            self._allow(asking, place, UseTarget(name=target))

    def _require(self, asking: Asking, tool: str) -> None:
        self._allow(asking, asking.place, UseTool(name=tool, effect=Effect.READ))

    def _allow(self, asking: Asking, place: str, action: AccessAction) -> None:
        decision = decide(self._policy, asking.at(place), action=action)
        if not decision.allowed:
            raise BadJob(decision.reason)

    async def _find(self, asking: Asking, name: str) -> JobRow:
        wished = name.strip().strip("`'\"")
        row = await self._store.load_job(wished) if _NAME.fullmatch(wished) else None
        if row is not None and is_open_to(row, asking):
            return row
        known = [row.name for row in await self._store.list_jobs() if is_open_to(row, asking)]
        there = f"there are: {', '.join(known[:20])}" if known else "there are none here yet"
        raise BadJob(f"there is no job {wished[:63]!r} in this channel; {there}")

    async def _find_to_change(self, asking: Asking, name: str) -> JobRow:
        self._require(asking, CHANGE)
        row = await self._find(asking, name)
        self._allow(asking, row.place, Speak())
        return row

    async def _is_taken(self, name: str) -> bool:
        return await self._store.load_job(name) is not None

    async def _look(self, row: JobRow) -> ListedJob:
        runs = await self._store.list_job_runs(row.job_id, limit=1)
        return ListedJob(row=row, run=runs[0] if runs else None)

    async def _propose(self, asking: Asking, wanted: Wanted, place: str) -> None:
        await self._record("job.proposed", asking, wanted.name, wanted.action, place)
        await self._store.save_proposal(
            Proposal(
                thread_key=asking.key,
                author=asking.asker.owner,
                body=dump_wanted(replace(wanted, by=asking.author.name)),
                created_at=self._clock.now(),
            )
        )

    async def _record(self, action: str, asking: Asking, name: str, wanted: str, place: str) -> None:
        detail: dict[str, str | int] = {"job": name, "wanted": wanted, "place": place}
        await self._audit.record(action, actor=asking.asker.actor, thread_key=asking.thread.key, detail=detail)

    def _find_place(self, asking: Asking, channel: str) -> str:
        """Return the address of the channel that is meant.

        Raises:
            BadJob: it cannot be told which one.
        """
        wished = channel.strip()
        if wished.lower() in ("", "here", "this channel", "这里"):
            return asking.place
        here = asking.thread
        if (linked := _LINKED.fullmatch(wished)) is not None:
            return f"{here.platform}:{here.workspace}/{linked[1]}"
        if (addressed := _ADDRESSED.fullmatch(wished)) is None:
            raise BadJob(
                f"I know channels by their address, not by a name such as {wished[:60]!r}; ask me in that channel, or "
                f"write its address, such as {here.platform}:{here.workspace}/{here.channel}"
            )
        platform, workspace = addressed["platform"] or here.platform, addressed["workspace"] or here.workspace
        return f"{platform}:{workspace}/{addressed['channel']}"


# -- values ----------------------------------------------------------------------------------------


def is_open_to(row: JobRow, asking: Asking) -> bool:
    """True for a job of the channel, or the person's own of the same workspace."""
    if row.place == asking.place:
        return True
    here = asking.thread
    return row.owner == asking.asker.owner and row.place.startswith(f"{here.platform}:{here.workspace}/")


def _check_chat(row: JobRow) -> None:
    if row.origin == "settings":
        raise BadJob(
            f"the job {row.name} is one of the settings; the operator changes it in [reports.{row.name}] of "
            "hermod.toml. Here it can be paused, resumed, run and stopped"
        )
