"""What is advised where nothing can be tried."""

from __future__ import annotations

from bot.tools.index_advice.candidates import build_moves
from bot.tools.index_advice.choose import Limits, Query
from bot.tools.index_advice.heuristic import guess_indexes
from bot.tools.index_advice.shape import KeyPart
from bot.tools.index_advice.study import Studied
from bot.tools.index_advice.uses import TableUse
from bot.tools.index_advice.words import explain_silence
from bot.tools.slow_queries.explain_prepare import Prepared
from tests.unit.index_advice.test_candidates import use


def studied(fingerprint: str, one: TableUse) -> Studied:
    query = Query(
        fingerprint=fingerprint,
        sql="select",
        prepared=Prepared(sql="select", asked="select", types=()),
        tables=frozenset(),
        aliases=(),
        moves=build_moves(one),
        weight=1.0,
        calls=None,
    )
    return Studied(query=query, uses=(one,), cost=5000.0)


def test_one_index_is_advised_for_both_directions_and_for_what_it_begins_with() -> None:
    upwards = studied("up", use("(o.customer_id = $1)", order=(KeyPart("closed_at"),)))
    downwards = studied("down", use("(o.customer_id = $1)", order=(KeyPart("closed_at", True, True),)))
    plain = studied("plain", use("(o.customer_id = $1)"))
    chosen = guess_indexes([plain, upwards, downwards], Limits())
    assert [one.built[0].shape.describe() for one in chosen] == ["orders (customer_id, closed_at)"]
    assert {effect.query.fingerprint for effect in chosen[0].effects} == {"up", "down", "plain"}


def test_indexes_that_serve_different_conditions_are_both_advised() -> None:
    chosen = guess_indexes([studied("a", use("(o.customer_id = $1)")), studied("b", use("(o.id = $1)"))], Limits())
    assert {one.built[0].shape.describe() for one in chosen} == {"orders (customer_id)", "orders (id)"}


def test_nothing_is_said_to_have_been_tried_where_nothing_could_be() -> None:
    one = use("(o.customer_id = $1)")
    assert "tried" not in explain_silence([one], 5000.0, Limits(), tried=1, guessed=True)
    assert "1 index was tried" in explain_silence([one], 5000.0, Limits(), tried=1)
