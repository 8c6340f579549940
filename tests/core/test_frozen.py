"""The base of every value: nothing can be changed, nothing unknown gets in."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from holdfast.core.frozen import Frozen, canonical, replace


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
