"""What an answer says arrives whole, and pings nobody."""

from __future__ import annotations

import re

import pytest

from adapters.chat import Delivered, Reply
from adapters.markdown import fit_markdown
from tests.contract.chat import unable
from tests.contract.chat.place import Place, ask
from tests.contract.chat.scenario import scenario
from tests.unit.adapters.markdown_texts import CONSTRUCTS

FORMS = {
    "code": "Try\n\n```sql\nselect a01, b02\n  from t03 where x < 5 && y > 6;\n```\n\nand `c04`",
    "table": "| name05 | rows06 |\n|--|--:|\n| orders07 | 250000 |\n| 顧客08 | 20000 |",
    "wide": "| a09 | b10 |\n|--|--|\n" + "\n".join(f"| r{n} | {'long' * 30}{n} |" for n in range(20, 30)),
    "list": "1. first11\n   - inner12\n   - inner13\n2. second14\n\n- [ ] todo15",
    "links": "[plan16](https://ex.test/a?b=1&c=2#d) and https://ex.test/bare17",
    "cjk": "**遅い18**クエリは`orders19`です。過去30分間。",
    "emoji": "up \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d20 \u2764\ufe0f",
    "rtl": "שלום21 3 errors (12:00) مرحبا22",
    "quote": "> quoted23\n> > deeper24\n\n# Title25\n\n~~gone26~~ **bold27** *it28*",
    "signs": "a29 < b & c > d, 2 * 3 * 4, snake_case_name30, C:\\path, \\*no\\*",
}

EVERYBODY = "@everyone @here @channel <!channel> <!here> <!everyone> <!subteam^S1|x>"


def seen(place: Place, message_thread: object) -> str:
    """Everything that was posted, files included, without marks that nobody sees."""
    posts = place.posts(message_thread)  # type: ignore[arg-type]
    whole = "\n".join([*(post.text for post in posts), *(b.decode() for post in posts for b in post.files.values())])
    unescaped = whole.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return re.sub("[\u200b\u2060\\\\\u2066-\u2069]", "", unescaped)


@pytest.mark.parametrize("form", FORMS)
@scenario("whole")
async def test_every_word_of_an_answer_arrives_in_order(place: Place, form: str) -> None:
    thread = (await ask(place)).thread
    (part,) = fit_markdown(FORMS[form], place.adapter.limits)
    assert isinstance(await place.adapter.post(Reply(thread=thread, text=part, key="k")), Delivered)
    shown, at = seen(place, thread), 0
    for word in re.findall(r"\w+", re.sub(r"```\w+", "", FORMS[form]).replace("\\", "")):
        found = shown.find(word, at)
        assert found >= 0 or word in shown, f"{word} is not in {shown!r}"
        at = max(at, found)


@scenario("whole")
async def test_code_keeps_its_lines_and_blanks(place: Place) -> None:
    thread = (await ask(place)).thread
    code = "def f(x):\n    if x < 2:\n        return '<@U1>'\n\n    return x"
    await place.adapter.post(Reply(thread=thread, text=f"```python\n{code}\n```", key="k"))
    assert re.sub("[\u200b\u2060]", "", code) in seen(place, thread)


def people(place: Place) -> str:
    ids = (place.person("alice"), place.person("bob"))
    return " ".join(f"<@{who}> <@!{who}> <@&{who}>" for who in ids)


@pytest.mark.parametrize("construct", range(len(CONSTRUCTS)))
@scenario("pings", unable=unable.nobody_to_ping)
async def test_nobody_is_pinged_from_any_construct(place: Place, construct: str) -> None:
    thread = (await ask(place)).thread
    text = CONSTRUCTS[int(construct)].replace("{}", f"{EVERYBODY} {people(place)}")
    assert isinstance(await place.adapter.post(Reply(thread=thread, text=text, key="k")), Delivered)
    assert place.posts(thread)
    assert place.pinged() == set()


@scenario("pings", unable=unable.nobody_to_ping)
async def test_nobody_is_pinged_by_names_of_files_buttons_and_steps(place: Place) -> None:
    from adapters.chat import Attachment, Button, PlanStep

    message = await ask(place)
    said = f"{EVERYBODY} {people(place)}"
    draft = place.adapter.open_draft(message.thread, asker=message.author)
    assert draft is not None
    await draft.show(f"So far: {said} ", [PlanStep(id="1", title=said, state="running", detail=said)])
    reply = Reply(
        thread=message.thread,
        text=f"{said} done",
        key="k",
        files=(Attachment(name=f"{said}.txt", content=said, title=said),),
        buttons=(Button(name="approve", label=said, value="a1"),),
    )
    if await draft.finish(reply) is None:
        await place.adapter.post(reply)
    assert place.posts(message.thread)
    assert place.pinged() == set()


@scenario("people", unable=unable.nobody_to_ping)
async def test_only_the_people_of_the_reply_are_pinged(place: Place) -> None:
    thread = (await ask(place)).thread
    alice, bob = place.person("alice"), place.person("bob")
    text = f"<@{alice}>: ask <@{bob}>. {EVERYBODY}"
    await place.adapter.post(Reply(thread=thread, text=text, key="k", mentions=frozenset({alice})))
    assert place.pinged() == {alice}
