"""Which parameters of a hook take a resource, and which are refused before anything runs."""

from __future__ import annotations

import pytest

from holdfast import Changes, HookContext, hook
from holdfast.core.base.errors import InvalidInput
from tests.core.building import Run, hook_at


class Pool:
    """Something that no model can send."""


def test_a_hook_takes_its_context_and_resources_by_their_types() -> None:
    @hook("before_step")
    def count(_: HookContext, db: Pool, *, cache: Pool, times: int = 3) -> Changes:
        return Changes(metadata={"same": db is cache, "times": times})

    assert count.resources == {"db": Pool, "cache": Pool}
    pool, context = Pool(), Run(hooks=[hook_at("before_step")]).begin().hook_context
    assert count(context, db=pool, cache=pool) == Changes(metadata={"same": True, "times": 3})


def test_a_parameter_that_no_resource_could_give_is_refused_with_its_name() -> None:
    def wrong(_: HookContext, times: int) -> None:
        del times

    def untyped(_: HookContext, db: object) -> None:
        del db

    del untyped.__annotations__["db"]

    with pytest.raises(InvalidInput, match=r"hook 'wrong': the parameter 'times' has <class 'int'>; a hook takes"):
        hook("before_step")(wrong)
    with pytest.raises(InvalidInput, match="hook 'untyped': the parameter 'db' has no type"):
        hook("before_step")(untyped)
