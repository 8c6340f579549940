"""What is wrong with the fields of data that a person wrote: where, the nearest name, and no secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from holdfast.core.base.field_errors import field_problems


class Key(BaseModel):
    model_config = ConfigDict(extra="forbid")

    variable: str | None = Field(None, pattern="^[A-Z_]+$")
    file: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Key:
        if self.variable and self.file:
            raise ValueError("give one of them")
        return self


class Server(BaseModel):
    model_config = ConfigDict(extra="forbid")

    key: Key | None = None
    port: int
    headers: Mapping[str, str] = {}
    kind: Literal["fast", "slow"] = "fast"

    @model_validator(mode="after")
    def _is_consistent(self) -> Server:
        if self.port == 13:
            raise ValueError("13 is no good number")
        return self


def problems(data: Mapping[str, Any], *, may_hold_secrets: bool) -> str:
    with pytest.raises(ValidationError) as refused:
        Server.model_validate(data)
    return field_problems(refused.value, Server, "the server", may_hold_secrets=may_hold_secrets)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "port: is missing"),
        ({"port": 1, "prot": 2}, "unknown field 'prot', did you mean 'port'?"),
        ({"port": 1, "key": {"env": "A"}}, "unknown field 'key.env', there are: file, variable"),
        ({"port": 1, "key": {"variable": "A", "file": "b"}}, "key: give one of them"),
        ({"port": 1, "kind": "fats"}, "kind: 'fats' is not a value of it, did you mean 'fast'?"),
        ({"port": "8k"}, "port: Input should be a valid integer, unable to parse string as an integer (it is '8k')"),
        ({"port": 13}, "the server: 13 is no good number"),
        ({"port": []}, "port: Input should be a valid integer (it is '[]')"),
    ],
)
def test_a_problem_has_its_place_and_the_nearest_name(data: dict[str, Any], problem: str) -> None:
    assert problems(data, may_hold_secrets=True) == problem
    assert problems(data, may_hold_secrets=False) == problem


def test_a_text_is_repeated_only_where_it_can_be_no_secret() -> None:
    data = {"port": 1, "key": {"variable": "sk-canary"}, "headers": {"authorization": ["sk-canary"]}}
    hidden = problems(data, may_hold_secrets=True)
    assert hidden.startswith("key.variable: String should match pattern")
    assert "headers.authorization: Input should be a valid string" in hidden
    assert "canary" not in hidden
    assert problems(data, may_hold_secrets=False).count("sk-canary") == 2
