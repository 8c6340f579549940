"""The headers that providers send about their rate limits, in their own words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.models.rate_limits.rate_headers import PAUSE_SECONDS, PAUSE_SECONDS_MAX, RateReport, rate_report

AT = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, {}, RateReport()),
        (
            200,
            {"X-RateLimit-Remaining-Requests": "59", "x-ratelimit-remaining-tokens": "149984"},
            RateReport(59, 149984),
        ),
        (200, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, RateReport(None, 0, 300)),
        (
            200,
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "120ms"},
            RateReport(0, None, 0.12),
        ),
        (
            200,
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2m9.5s"},
            RateReport(0, None, 129.5),
        ),
        (200, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7"}, RateReport(0, None, 7)),
        (200, {"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "2m"}, RateReport(3)),
        (
            200,
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-26T12:00:20Z",
                "anthropic-ratelimit-tokens-remaining": "9000",
                "anthropic-ratelimit-input-tokens-remaining": "500",
            },
            RateReport(0, 500, 20),
        ),
        (429, {}, RateReport(pause_seconds=PAUSE_SECONDS)),
        (429, {"retry-after": "3"}, RateReport(pause_seconds=3)),
        (429, {"retry-after-ms": "250"}, RateReport(pause_seconds=0.25)),
        (429, {"retry-after": "Thu, 26 Nov 2026 12:00:30 GMT"}, RateReport(pause_seconds=30)),
        (429, {"retry-after": "1000000000"}, RateReport(pause_seconds=PAUSE_SECONDS_MAX)),
        (429, {"retry-after": "-5"}, RateReport()),
        (503, {"retry-after": "3"}, RateReport()),
    ],
)
def test_headers_say_what_is_left_and_for_how_long(status: int, headers: dict[str, str], expected: RateReport) -> None:
    assert rate_report(status, headers, AT) == expected


@pytest.mark.parametrize("text", ["", "many", "nan", "1 2", "9" * 200, "-", "1h1h", "٣"])
def test_headers_that_cannot_be_read_stop_no_route(text: str) -> None:
    for name in ("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"):
        reset = name.replace("remaining", "reset")
        report = rate_report(200, {name: "0", reset: text}, AT)
        assert 0 <= report.pause_seconds <= PAUSE_SECONDS_MAX
        report = rate_report(200, {name: text, reset: "1s"}, AT)
        assert report.pause_seconds == 0
    reset = "anthropic-ratelimit-requests-reset"
    assert rate_report(200, {"anthropic-ratelimit-requests-remaining": "0", reset: text}, AT).pause_seconds == 0
    assert 0 <= rate_report(429, {"retry-after": text}, AT).pause_seconds <= PAUSE_SECONDS_MAX


@pytest.mark.parametrize(
    "text",
    [
        "-1e30",
        "inf",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "999999999d999999999h",
        "Mon, 01 Jan 99999999999 00:00:00 GMT",
        "Mon, 01 Jan 2026 99999999999999999999:00:00 GMT",
        "Mon, 01 Jan 2026 00:00:00 +99999999999999999999",
    ],
)
def test_an_absurd_figure_pauses_a_route_for_minutes_at_the_most(text: str) -> None:
    for left in ("x-ratelimit-remaining-tokens", "anthropic-ratelimit-requests-remaining"):
        for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "anthropic-ratelimit-requests-reset"):
            assert 0 <= rate_report(429, {left: "0", name: text}, AT).pause_seconds <= PAUSE_SECONDS_MAX
    assert 0 <= rate_report(200, {"x-ratelimit-remaining-tokens": text}, AT).pause_seconds <= PAUSE_SECONDS_MAX
