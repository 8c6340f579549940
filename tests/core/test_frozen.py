"""The base of every value: nothing can be changed, nothing unknown gets in."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from holdfast.core.base.bounds import TEXT_CHARS_MAX
from holdfast.core.base.frozen import Frozen, canonical, replace, trusted
from holdfast.core.conversation.messages import Message
from holdfast.core.conversation.steps import AgentStep


class Value(Frozen):
    """A value."""

    number: float = 0
    text: str = ""


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Value(), "number", 1)  # noqa: B010  # the type checkers would refuse the plain form


@pytest.mark.parametrize("data", [{"nummer": 1}, {"number": float("nan")}, {"number": float("inf")}])
def test_unknown_fields_and_impossible_numbers_are_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Value.model_validate(data)


def test_replacing_makes_a_new_value() -> None:
    old = Value(number=1, text="a")
    new = replace(old, text="b")
    assert (old, new) == (Value(number=1, text="a"), Value(number=1, text="b"))


def test_the_canonical_form_follows_the_declaration_not_the_order_of_the_fields_given() -> None:
    assert canonical(Value.model_validate({"text": "ü", "number": 1})) == b'{"number":1.0,"text":"\xc3\xbc"}'


class Wider(Value):
    """A value with a list beside."""

    items: tuple[int, ...] = ()
    notes: Mapping[str, int] = Field(default_factory=dict[str, int])


wider = st.builds(
    Wider,
    number=st.floats(allow_nan=False, allow_infinity=False),
    text=st.text(max_size=5),
    items=st.lists(st.integers(), max_size=3).map(tuple),
)


@given(wider, wider, st.sets(st.sampled_from(["number", "text", "items"])))
def test_a_replacement_is_what_pydantics_own_copy_is(old: Wider, other: Wider, names: set[str]) -> None:
    changes = {name: getattr(other, name) for name in names}
    new, copied = replace(old, **changes), old.model_copy(update=changes)
    assert new == copied
    assert (new.model_fields_set, new.model_extra) == (copied.model_fields_set, copied.model_extra)
    assert (repr(new), new.model_dump_json()) == (repr(copied), copied.model_dump_json())
    assert type(new) is Wider
    assert pickle.loads(pickle.dumps(new)) == new  # noqa: S301  # our own bytes
    assert copy.deepcopy(new) == new
    assert Wider.model_validate(new) is new


def test_replacing_leaves_the_old_value_as_it_was() -> None:
    old = Value(number=1)
    new = replace(old, text="b")
    assert (old.text, old.model_fields_set) == ("", {"number"})
    assert new.model_fields_set == {"number", "text"}


def test_a_replaced_value_hashes_like_one_made_anew() -> None:
    assert hash(replace(Value(number=1), text="b")) == hash(Value(number=1, text="b"))


def test_a_replaced_value_cannot_be_changed_either() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(replace(Value(), number=2), "number", 1)  # noqa: B010  # the type checkers would refuse the plain form


def test_replacing_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="Value has no field 'nummer'"):
        replace(Value(number=1), nummer=2)


def test_a_text_has_a_bound_whatever_the_field() -> None:
    assert Value(text="x" * TEXT_CHARS_MAX).text
    with pytest.raises(ValidationError, match="at most"):
        Value(text="x" * (TEXT_CHARS_MAX + 1))


def test_a_trusted_value_is_written_and_compared_like_a_checked_one() -> None:
    checked = Message(role="tool", tool_call_id="x", content="hi")
    made = trusted(Message, tool_call_id="x", content="hi", role="tool")
    assert made == checked
    assert canonical(made) == canonical(checked), "the order of fields is part of every digest"
    assert made.metadata is not trusted(Message, role="user").metadata


def test_a_trusted_value_shares_only_frozen_defaults() -> None:
    step = trusted(AgentStep, id="1", number=1, input_length=0)
    assert step == AgentStep(id="1", number=1, input_length=0)
    assert canonical(step) == canonical(AgentStep(id="1", number=1, input_length=0))
