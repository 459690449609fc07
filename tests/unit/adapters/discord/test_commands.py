"""Offers become what Discord takes, and what Discord made of them is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapters.commands import CommandOffer, CommandOption
from adapters.discord.commands import MOST_COMMANDS, WHOLE_MAX, build_commands, hash_commands
from adapters.discord.wire import Wire

ASK = CommandOffer(
    name="ask", summary="Ask.", options=(CommandOption(name="question", summary="What?", required=True, minimum=1),)
)
SLOWQ = CommandOffer(
    name="slowq",
    summary="List slow queries.",
    options=(
        CommandOption(name="threshold", summary="Seconds.", kind="number", minimum=0, maximum=86_400),
        CommandOption(name="order_by", summary="How.", choices=("total", "mean")),
        CommandOption(name="limit", summary="Rows.", kind="integer", minimum=1, maximum=100),
        CommandOption(name="target", summary="Which.", completes="target"),
        CommandOption(name="system", summary="All.", kind="boolean"),
    ),
)


def as_registered(command: Wire) -> dict[str, Any]:
    """What Discord answers: more fields, no empty ones, and numbers as it likes."""
    plain = {**command, "id": "1", "application_id": "2", "version": "3", "default_member_permissions": None}
    options = []
    for option in command["options"] if isinstance(command["options"], list) else []:
        kept = {k: v for k, v in option.items() if v is not False}
        for bound in ("min_value", "max_value"):
            if isinstance(kept.get(bound), float) and kept[bound].is_integer():
                kept[bound] = int(kept[bound])
        options.append(kept | {"name_localizations": None})
    return plain | ({"options": options} if options else {})


def test_options_become_discords_types_bounds_choices_and_suggestions() -> None:
    (ask, slowq) = build_commands([ASK, SLOWQ])
    assert ask == {
        "type": 1,
        "name": "ask",
        "description": "Ask.",
        "options": [{"type": 3, "name": "question", "description": "What?", "required": True, "min_length": 1}],
    }
    options = {o["name"]: o for o in slowq["options"]}  # type: ignore[attr-defined]
    assert [o["type"] for o in options.values()] == [10, 3, 4, 3, 5]
    assert (options["threshold"]["min_value"], options["threshold"]["max_value"]) == (0.0, 86_400.0)
    assert options["order_by"]["choices"] == [{"name": "total", "value": "total"}, {"name": "mean", "value": "mean"}]
    assert (options["limit"]["min_value"], options["limit"]["max_value"]) == (1, 100)
    assert options["target"]["autocomplete"] is True
    assert "autocomplete" not in options["order_by"], "Discord takes choices or suggestions, not both"


def test_what_discord_made_of_it_has_the_same_hash_in_any_order() -> None:
    commands = build_commands([ASK, SLOWQ])
    assert hash_commands([as_registered(c) for c in reversed(commands)]) == hash_commands(commands)


def test_every_visible_change_has_another_hash() -> None:
    seen = {hash_commands(build_commands([ASK, SLOWQ])), hash_commands(()), hash_commands(build_commands([ASK]))}
    changes: list[Mapping[str, Any]] = [
        {"name": "asks"},
        {"summary": "Ask me."},
        {"options": ()},
        {"options": (CommandOption(name="question", summary="What?", required=True, minimum=2),)},
        {"options": (CommandOption(name="question", summary="What?"),)},
        {"options": (CommandOption(name="question", summary="What?", required=True, choices=("a",)),)},
        {"options": (CommandOption(name="question", summary="What?", required=True, completes="target"),)},
        {"options": (CommandOption(name="question", summary="What?", required=True, kind="integer"),)},
    ]
    for change in changes:
        offer = CommandOffer(**{"name": ASK.name, "summary": ASK.summary, "options": ASK.options, **change})
        seen.add(hash_commands(build_commands([offer, SLOWQ])))
    assert len(seen) == 3 + len(changes)


def test_what_discord_would_refuse_is_left_out_and_the_rest_stays() -> None:
    bad = CommandOffer(name="No Good", summary="x")
    twice = CommandOffer(name="ask", summary="again")
    assert [c["name"] for c in build_commands([bad, ASK, twice, SLOWQ])] == ["ask", "slowq"]
    many = [CommandOffer(name=f"c{n}", summary="x") for n in range(120)]
    assert len(build_commands(many)) == MOST_COMMANDS
    (command,) = build_commands(
        [CommandOffer(name="x", summary="x", options=(CommandOption(name="Bad Name", summary="x"), *ASK.options))]
    )
    assert [o["name"] for o in command["options"]] == ["question"]  # type: ignore[attr-defined]


def test_a_command_that_is_too_long_in_all_loses_the_longest_choices() -> None:
    choices = tuple(f"{n:02}{'x' * 98}" for n in range(25))
    offer = CommandOffer(
        name="x",
        summary="x" * 100,
        options=(
            CommandOption(name="a", summary="a", choices=choices),
            CommandOption(name="b", summary="b", choices=choices[:20]),
            CommandOption(name="c", summary="c", choices=("1", "2")),
        ),
    )
    (command,) = build_commands([offer])
    assert [("choices" in o) for o in command["options"]] == [False, True, True]  # type: ignore[attr-defined]
    assert count(command) <= WHOLE_MAX


def count(wire: Any) -> int:
    """Count as Discord does: names, descriptions and values of all levels."""
    if isinstance(wire, list):
        return sum(count(part) for part in wire)
    if not isinstance(wire, Mapping):
        return 0
    own = sum(len(str(wire[name])) for name in ("name", "description", "value") if name in wire)
    return own + sum(count(part) for part in wire.values())


texts = st.one_of(st.text(max_size=5), st.just("x" * 150))
names = st.text(st.sampled_from("abcxyz_-019AÄ "), max_size=40)
options = st.builds(
    CommandOption,
    name=names,
    summary=texts,
    kind=st.sampled_from(["text", "integer", "number", "boolean"]),
    required=st.booleans(),
    choices=st.lists(st.one_of(st.text(max_size=3), st.just("y" * 120)), max_size=40).map(tuple),
    completes=st.sampled_from(["", "target"]),
    minimum=st.none() | st.floats(-1e20, 1e20),
    maximum=st.none() | st.floats(-1e20, 1e20),
)
offers = st.builds(
    CommandOffer,
    name=names,
    summary=texts,
    options=st.lists(options, max_size=4).map(lambda some: tuple(some * 9)),
)


@given(st.lists(offers, max_size=2))
def test_whatever_is_offered_keeps_discords_limits(given_offers: list[CommandOffer]) -> None:
    for command in build_commands(given_offers):
        built: Any = command
        assert 1 <= len(built["name"]) <= 32
        assert built["name"] == built["name"].lower()
        assert 1 <= len(built["description"]) <= 100
        assert len(built["options"]) <= 25
        assert count(built) <= WHOLE_MAX
        assert sorted(o["required"] for o in built["options"]) == [o["required"] for o in built["options"]][::-1]
        assert len({o["name"] for o in built["options"]}) == len(built["options"])
        for option in built["options"]:
            assert 1 <= len(option["name"]) <= 32
            assert 1 <= len(option["description"]) <= 100
            assert not ("choices" in option and "autocomplete" in option)
            assert 1 <= len(option.get("choices", "x")) <= 25
            assert all(1 <= len(choice["name"]) <= 100 for choice in option.get("choices", ()))
            assert 0 <= option.get("min_length", 0) <= 6_000
            assert 1 <= option.get("max_length", 1) <= 6_000
