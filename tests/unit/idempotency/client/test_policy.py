"""The decision after each attempt: what is final, how long to wait, when to stop."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotency.client.errors import GaveUp
from idempotency.client.policy import Again, Final, Policy, Stop, retry_after_seconds

IN_PROGRESS = b'{"code": "idempotency_in_progress"}'
PROBLEM = {"Content-Type": "application/problem+json; charset=utf-8"}
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

OUTCOMES = st.one_of(
    st.integers(100, 599).map(httpx.Response),
    st.sampled_from(
        [httpx.ConnectError("x"), httpx.ReadTimeout("x"), httpx.LocalProtocolError("x"), OSError("x")]
    ),
)


def after(outcome: httpx.Response | Exception, *, policy: Policy | None = None, **facts: float) -> object:
    given_facts = {"attempt": 1, "elapsed_seconds": 0.0, "draw": 0.5, "now": NOW.timestamp(), **facts}
    return (policy or Policy()).after(outcome, **given_facts)  # type: ignore[arg-type]


def test_a_passing_trouble_is_sent_again_and_an_answer_is_final() -> None:
    for status in (425, 429, 500, 502, 503, 504):
        assert after(httpx.Response(status)) == Again(0.125)
    for status in (200, 201, 204, 303, 307, 400, 401, 404, 408, 409, 410, 412, 413, 422, 423, 501, 505, 507):
        assert after(httpx.Response(status)) == Final()
        assert after(httpx.Response(status), attempt=2) == Final()


def test_a_broken_connection_is_sent_again() -> None:
    timeouts = (httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ReadTimeout, httpx.WriteTimeout)
    broken = (httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError, httpx.ProxyError)
    for error in (*timeouts, *broken):
        assert after(error("x")) == Again(0.125)


def test_a_mistake_of_the_program_is_raised_and_does_not_hide_an_unknown_outcome() -> None:
    gave_up = GaveUp(
        "x",
        header="Idempotency-Key",
        key="k",
        intent=None,
        attempts=6,
        last_response=None,
        request=httpx.Request("POST", "http://x"),
    )
    mistakes = (httpx.UnsupportedProtocol("x"), httpx.LocalProtocolError("x"), httpx.DecodingError("x"))
    for error in (*mistakes, ValueError("x"), gave_up):
        assert after(error) == Final()
        assert isinstance(after(error, attempt=2), Stop)


@pytest.mark.usefixtures("collector_off")
@pytest.mark.parametrize(
    ("content", "headers", "again"),
    [
        (IN_PROGRESS, PROBLEM, True),
        (IN_PROGRESS, {"Content-Type": "Application/Problem+JSON"}, True),
        (IN_PROGRESS, {"Content-Type": "application/json"}, False),
        (b'{"code": "version_conflict"}', PROBLEM, False),
        (b'{"code": ["idempotency_in_progress"]}', PROBLEM, False),
        (b"", PROBLEM, False),
        (b"\xff\xfe\xfd", PROBLEM, False),
        (b"[" * 100_000, PROBLEM, False),
    ],
)
def test_only_a_409_in_progress_is_sent_again(content: bytes, headers: dict[str, str], again: bool) -> None:
    answer = httpx.Response(409, content=content, headers=headers)
    assert after(answer) == (Again(0.125) if again else Final())


def test_a_409_waits_as_long_as_it_says_and_is_final_where_it_cannot_be_decompressed() -> None:
    answer = httpx.Response(409, content=IN_PROGRESS, headers={**PROBLEM, "Retry-After": "3"})
    assert after(answer) == Again(3.0)
    gzipped = httpx.Response(
        409, stream=httpx.ByteStream(IN_PROGRESS), headers={**PROBLEM, "Content-Encoding": "gzip"}
    )
    assert after(gzipped) == Final()


def test_bounds_of_the_drawn_wait_double_up_to_the_cap_and_the_jitter_is_full() -> None:
    policy = Policy(attempts_max=10, deadline_seconds=1000)
    waits = [after(httpx.Response(503), policy=policy, attempt=n, draw=1.0) for n in range(1, 10)]
    assert waits == [Again(seconds) for seconds in (0.25, 0.5, 1, 2, 4, 8, 16, 20, 20)]
    assert after(httpx.Response(503), attempt=4, draw=0.0) == Again(0.0)
    assert after(httpx.Response(503), attempt=4, draw=0.25) == Again(0.5)


def test_retry_after_is_a_minimum_may_exceed_the_longest_wait_and_stops_beyond_the_deadline() -> None:
    assert after(httpx.Response(429, headers={"Retry-After": "0"})) == Again(0.125)
    assert after(httpx.Response(429, headers={"Retry-After": "60"})) == Again(60.0)
    assert isinstance(after(httpx.Response(429, headers={"Retry-After": "120"})), Stop)
    assert isinstance(after(httpx.Response(429, headers={"Retry-After": "9" * 5000})), Stop)
    assert isinstance(after(httpx.Response(429, headers={"Retry-After": "30"}), elapsed_seconds=100), Stop)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Fri, 02 Jan 2026 03:04:15 GMT", 10.0),
        ("Friday, 02-Jan-26 03:04:15 GMT", 10.0),
        ("Fri Jan  2 03:04:15 2026", 10.0),
        ("Fri, 02 Jan 2026 03:00:00 GMT", 0.0),
        ("", 0.0),
        ("soon", 0.0),
        ("٣", 0.0),
        ("Fri, 02 Jan 99999 03:04:15 GMT", 0.0),
    ],
)
def test_retry_after(value: str, seconds: float) -> None:
    headers = httpx.Headers({"Retry-After": value}, encoding="utf-8")
    assert retry_after_seconds(headers, now=NOW.timestamp()) == seconds


def test_a_retry_after_date_is_measured_by_the_server_s_clock() -> None:
    server_now = NOW + timedelta(hours=5)
    headers = httpx.Headers(
        {
            "Date": format_datetime(server_now, usegmt=True),
            "Retry-After": format_datetime(server_now + timedelta(seconds=4), usegmt=True),
        }
    )
    assert retry_after_seconds(headers, now=NOW.timestamp()) == 4.0


@given(
    outcome=OUTCOMES,
    attempt=st.integers(1, 10_000),
    elapsed=st.floats(0, 1e6),
    draw=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.integers(0, 10**6) | st.sampled_from(["", "soon", "-1", "1e3", "٣"]),
)
def test_whatever_happens_the_limits_hold(
    outcome: httpx.Response | Exception, attempt: int, elapsed: float, draw: float, asked: str | int | None
) -> None:
    policy = Policy(attempts_max=5000)
    floor = 0.0
    if isinstance(outcome, httpx.Response):
        outcome = httpx.Response(outcome.status_code)
        if asked is not None:
            outcome.headers = httpx.Headers({"Retry-After": str(asked)}, encoding="utf-8")
            floor = retry_after_seconds(outcome.headers, now=NOW.timestamp())
            assert floor == asked if isinstance(asked, int) else floor >= 0.0
    decision = after(outcome, policy=policy, attempt=attempt, elapsed_seconds=elapsed, draw=draw)
    if isinstance(decision, Again):
        assert attempt < policy.attempts_max
        assert elapsed + decision.wait_seconds < policy.deadline_seconds
        assert floor <= decision.wait_seconds <= max(floor, policy.wait_max_seconds)
    else:
        assert isinstance(decision, Final | Stop)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("attempts_max", 0),
        ("wait_first_seconds", -1.0),
        ("wait_max_seconds", float("inf")),
        ("wait_max_seconds", float("nan")),
        ("deadline_seconds", 0.0),
    ],
)
def test_limits_that_allow_nothing_are_refused(limit: str, value: Any) -> None:
    with pytest.raises(ValueError, match=limit):
        Policy(**{limit: value})
