"""What commands say of a server that has gone while they wait for it."""

from __future__ import annotations

import logging

import pytest

from holdfast.cli.command_context import Retries


def test_a_server_that_has_gone_is_told_of_once_and_in_our_words(capsys: pytest.CaptureFixture[str]) -> None:
    retries = Retries()
    said = "[sdk_core::temporalio_client::retry] gRPC call query_workflow retried {} times {{'error': 'Status …'}}"
    records = [logging.makeLogRecord({"msg": said.format(times)}) for times in range(5, 9)]
    assert not any(retries.filter(each) for each in records)
    assert capsys.readouterr().err.count("the Temporal server does not answer") == 1
    assert retries.filter(logging.makeLogRecord({"msg": "anything else"}))
