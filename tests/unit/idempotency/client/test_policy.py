"""The decision after each attempt: what is final, how long to wait, when to stop."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

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


@pytest.mark.parametrize("status", [425, 429, 500, 502, 503, 504])
def test_a_passing_trouble_is_sent_again(status: int) -> None:
    assert after(httpx.Response(status)) == Again(0.125)


@pytest.mark.parametrize(
    "status", [200, 201, 204, 303, 307, 400, 401, 404, 408, 409, 410, 412, 413, 422, 423, 501, 505, 507]
)
def test_an_answer_is_final(status: int) -> None:
    assert after(httpx.Response(status)) == Final()


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("x"),
        httpx.ConnectTimeout("x"),
        httpx.PoolTimeout("x"),
        httpx.ReadError("x"),
        httpx.ReadTimeout("x"),
        httpx.WriteError("x"),
        httpx.WriteTimeout("x"),
        httpx.RemoteProtocolError("x"),
        httpx.ProxyError("x"),
    ],
)
def test_a_broken_connection_is_sent_again(error: Exception) -> None:
    assert after(error) == Again(0.125)


MISTAKES = [
    httpx.UnsupportedProtocol("x"),
    httpx.LocalProtocolError("x"),
    httpx.DecodingError("x"),
    ValueError("x"),
    GaveUp(
        "x",
        header="Idempotency-Key",
        key="k",
        intent=None,
        attempts=6,
        last_response=None,
        request=httpx.Request("POST", "http://x"),
    ),
]


@pytest.mark.parametrize("error", MISTAKES)
def test_a_mistake_of_the_program_is_raised(error: Exception) -> None:
    assert after(error) == Final()


@pytest.mark.parametrize("error", MISTAKES)
def test_a_mistake_after_an_unknown_outcome_does_not_hide_it(error: Exception) -> None:
    assert isinstance(after(error, attempt=2), Stop)


def test_an_answer_after_an_unknown_outcome_is_final() -> None:
    assert after(httpx.Response(422), attempt=2) == Final()


@pytest.mark.parametrize(
    ("content", "headers", "again"),
    [
        (IN_PROGRESS, PROBLEM, True),
        (IN_PROGRESS, {"Content-Type": "Application/Problem+JSON"}, True),
        (IN_PROGRESS, {"Content-Type": "application/json"}, False),
        (IN_PROGRESS, {}, False),
        (b'{"code": "version_conflict"}', PROBLEM, False),
        (b'{"code": ["idempotency_in_progress"]}', PROBLEM, False),
        (b'["idempotency_in_progress"]', PROBLEM, False),
        (b"{", PROBLEM, False),
        (b"", PROBLEM, False),
        (b"\xff\xfe\xfd", PROBLEM, False),
        (b"[" * 100_000, PROBLEM, False),
    ],
)
def test_only_a_409_in_progress_is_sent_again(content: bytes, headers: dict[str, str], again: bool) -> None:
    answer = httpx.Response(409, content=content, headers=headers)
    assert after(answer) == (Again(0.125) if again else Final())


def test_a_409_that_cannot_be_decompressed_is_final() -> None:
    answer = httpx.Response(
        409, stream=httpx.ByteStream(IN_PROGRESS), headers={**PROBLEM, "Content-Encoding": "gzip"}
    )
    assert after(answer) == Final()


def test_in_progress_waits_as_long_as_it_says() -> None:
    answer = httpx.Response(409, content=IN_PROGRESS, headers={**PROBLEM, "Retry-After": "3"})
    assert after(answer) == Again(3.0)


def test_bounds_of_the_drawn_wait_double_up_to_the_cap() -> None:
    policy = Policy(attempts_max=10, deadline_seconds=1000)
    waits = [after(httpx.Response(503), policy=policy, attempt=n, draw=1.0) for n in range(1, 10)]
    assert waits == [Again(seconds) for seconds in (0.25, 0.5, 1, 2, 4, 8, 16, 20, 20)]


def test_the_jitter_is_full() -> None:
    assert after(httpx.Response(503), attempt=4, draw=0.0) == Again(0.0)
    assert after(httpx.Response(503), attempt=4, draw=0.25) == Again(0.5)


def test_the_last_attempt_is_the_last() -> None:
    assert isinstance(after(httpx.Response(503), attempt=5), Again)
    assert isinstance(after(httpx.Response(503), attempt=6), Stop)
    assert isinstance(after(httpx.Response(503), policy=Policy(attempts_max=1)), Stop)


def test_no_wait_beyond_the_deadline() -> None:
    assert after(httpx.ReadTimeout("x"), elapsed_seconds=119.8) == Again(0.125)
    assert isinstance(after(httpx.ReadTimeout("x"), elapsed_seconds=119.9), Stop)


def test_retry_after_is_a_minimum_and_may_exceed_the_longest_wait() -> None:
    assert after(httpx.Response(429, headers={"Retry-After": "0"})) == Again(0.125)
    assert after(httpx.Response(429, headers={"Retry-After": "60"})) == Again(60.0)


def test_retry_after_beyond_the_deadline_stops_at_once() -> None:
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
        ("-5", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("٣", 0.0),
        ("1, 2", 0.0),
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


@given(st.text())
def test_no_retry_after_breaks_anything(value: str) -> None:
    headers = httpx.Headers({"Retry-After": value}, encoding="utf-8")
    assert retry_after_seconds(headers, now=NOW.timestamp()) >= 0.0


@given(
    outcome=OUTCOMES,
    attempt=st.integers(1, 10_000),
    elapsed=st.floats(0, 1e6),
    draw=st.floats(0, 1, exclude_max=True),
    asked=st.none() | st.integers(0, 10**6),
)
def test_whatever_happens_the_limits_hold(
    outcome: httpx.Response | Exception, attempt: int, elapsed: float, draw: float, asked: int | None
) -> None:
    policy = Policy(attempts_max=5000)
    floor = 0.0
    if isinstance(outcome, httpx.Response):
        outcome = httpx.Response(outcome.status_code)
        if asked is not None:
            outcome.headers["Retry-After"] = str(asked)
            floor = float(asked)
    decision = after(outcome, policy=policy, attempt=attempt, elapsed_seconds=elapsed, draw=draw)
    if isinstance(decision, Again):
        assert attempt < policy.attempts_max
        assert elapsed + decision.wait_seconds < policy.deadline_seconds
        assert floor <= decision.wait_seconds <= max(floor, policy.wait_max_seconds)
    else:
        assert isinstance(decision, Final | Stop)


@pytest.mark.parametrize(
    "limits",
    [
        {"attempts_max": 0},
        {"wait_first_seconds": -1.0},
        {"wait_max_seconds": float("inf")},
        {"wait_max_seconds": float("nan")},
        {"deadline_seconds": 0.0},
        {"deadline_seconds": float("inf")},
    ],
)
def test_limits_that_allow_nothing_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        Policy(**limits)  # type: ignore[arg-type]


def test_an_attempt_has_the_time_that_is_left() -> None:
    assert Policy(deadline_seconds=10).remaining_seconds(4.0) == 6.0
    assert Policy(deadline_seconds=10).remaining_seconds(11.0) > 0
