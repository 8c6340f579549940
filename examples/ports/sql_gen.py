"""An agent that writes SQL: the database explains each query, and the model corrects those that are wrong.

After `sql_gen.py` of pydantic-ai, with SQLite. Run it: `python -m examples.ports.sql_gen "show me errors of today"`
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from typing import Annotated

from annotated_types import MinLen
from pydantic import BaseModel, Field

from examples.ports import scripts
from holdfast import Agent, Changes, HookContext, Message, ModelRetry, RunResult, hook
from holdfast.local import LocalDriver
from holdfast.testing import ScriptedModel

DB_SCHEMA = """
CREATE TABLE records (
    created_at timestamp,
    start_timestamp timestamp,
    end_timestamp timestamp,
    trace_id text,
    span_id text,
    parent_span_id text,
    level text,
    span_name text,
    message text,
    attributes text,
    tags text,
    is_exception boolean,
    otel_status_message text,
    service_name text
);
"""
SQL_EXAMPLES = """
Request: show me records where foobar is false
Response: SELECT * FROM records WHERE attributes->>'foobar' = false
Request: show me records from yesterday
Response: SELECT * FROM records WHERE date(start_timestamp) = date('now', '-1 day')
Request: show me error records with the tag "foobar"
Response: SELECT * FROM records WHERE level = 'error' AND tags LIKE '%foobar%'
"""


class Success(BaseModel):
    """The query that was asked for."""

    sql_query: Annotated[str, MinLen(1)]
    explanation: str = Field("", description="Explanation of the SQL query, as markdown")


class InvalidRequest(BaseModel):
    """The request says too little to write a query."""

    error_message: str


@hook("before_execution")
def today(context: HookContext) -> Changes:
    """Tell the model the date."""
    return Changes(messages=(Message(role="system", content=f"today's date = {context.at.date()}"),))


@hook("after_inference")
def explained(context: HookContext) -> None:
    """Have the model correct a query that the database does not understand."""
    answer: Success | InvalidRequest | None = context.answer_as(Success | InvalidRequest)
    if not isinstance(answer, Success):
        return
    if not answer.sql_query.upper().startswith("SELECT"):
        raise ModelRetry("Please create a SELECT query")
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute(DB_SCHEMA)
        try:
            db.execute(f"EXPLAIN {answer.sql_query}")
        except sqlite3.Error as error:
            raise ModelRetry(f"Invalid query: {error}") from error


AGENT: Agent[Success | InvalidRequest] = Agent(
    name="sql_gen",
    prompt=(
        "Given the following SQLite table of records, your job is to write a SQL query that suits the user's request.\n"
        f"Database schema:\n{DB_SCHEMA}\nExamples:\n{SQL_EXAMPLES}"
    ),
    hooks=[today, explained],
    answers=Success | InvalidRequest,
)


async def main(
    question: str = "show me logs from yesterday, with level 'error'",
) -> RunResult[Success | InvalidRequest]:
    """Ask for a query."""
    driver = LocalDriver(AGENT, model=ScriptedModel(scripts.sql_gen))  # no model=: the environment's endpoint
    result = await driver.run(question)
    print(result.output)
    return result


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
