"""What an operator sees of runs in the stock Web UI, looked at with a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from holdfast import ExecutionStatus, StopReason
from tests.browser.conftest import Stage, picture
from tests.browser.stage import begin

pytestmark = [pytest.mark.browser, pytest.mark.temporal, pytest.mark.asyncio(loop_scope="module")]


async def test_the_list_is_filtered_by_why_a_run_ended(stage: Stage, page: Page) -> None:
    await page.goto(f"{stage.ui}/namespaces/default/workflows")
    await expect(page.get_by_role("link", name=stage.waits)).to_be_visible()
    await page.goto(f"{stage.ui}/namespaces/default/workflows?query=HoldfastStopReason%3D%22cost_limit%22")
    await expect(page.get_by_role("link", name=stage.spent)).to_be_visible()
    await expect(page.get_by_role("link", name=stage.waits)).not_to_be_visible()
    await picture(page, "filtered")


async def test_the_timeline_says_what_each_call_was(stage: Stage, page: Page) -> None:
    await page.goto(await stage.run(stage.waits, "timeline"))
    for words in (r"find_order.*1001", r"approval of refund", r"inference.*step 1"):
        await expect(page.get_by_text(re.compile(words)).first).to_be_attached()
    await page.get_by_role("heading", name="Timeline").scroll_into_view_if_needed()
    await picture(page, "timeline")


async def test_the_metadata_tell_the_story_so_far(stage: Stage, page: Page) -> None:
    await page.goto(await stage.run(stage.waits, "user-metadata"))
    summary, details = page.frame_locator("iframe").first, page.frame_locator("iframe").last
    await expect(summary.get_by_text("The customer of order 1001 wants").first).to_be_visible()
    await expect(details.get_by_text("refund").first).to_be_visible()
    await picture(page, "details")


async def test_a_query_answers_in_the_browser(stage: Stage, page: Page) -> None:
    await page.goto(await stage.run(stage.waits, "query"))
    await page.get_by_role("button", name="Run Query").click()
    await expect(page.get_by_text("max_steps").first).to_be_visible()


async def test_an_answer_under_way_shows_its_last_words(stage: Stage, page: Page) -> None:
    client = stage.at_work.client
    streams = await begin(stage.at_work, "Tell the history of order 1001")
    await page.goto(await stage.run(streams, "pending-activities"))
    await expect(page.get_by_text(re.compile("a long answer")).first).to_be_visible()
    await picture(page, "pending")
    await client.stop(streams)
    await client.result(streams)


async def test_the_attributes_of_an_ended_run_say_what_it_cost(stage: Stage, page: Page) -> None:
    await page.goto(await stage.run(stage.spent, "search-attributes"))
    for words in ("HoldfastCost", "HoldfastStopReason", "cost_limit"):
        await expect(page.get_by_text(words).first).to_be_visible()


async def test_the_cancel_button_is_a_stop(stage: Stage, page: Page) -> None:
    client = stage.at_work.client
    chosen = await begin(stage.at_work, "Tell the history of order 1001 again")
    await page.goto(await stage.run(chosen, "timeline"))
    await page.get_by_role("button", name="Request Cancellation").click()
    await page.get_by_role("dialog").get_by_role("button", name=re.compile("Confirm|Request")).click()
    state = await client.result(chosen)
    assert (state.status, state.stop_reason) == (ExecutionStatus.STOPPED, StopReason.USER_REQUESTED)
