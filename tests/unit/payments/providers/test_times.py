"""Times in China's zone, in the one form that Alipay and WeChat's bills give them."""

from datetime import UTC, datetime

import pytest

from payments.providers.documents import china_time


def test_a_time_of_china_is_eight_hours_ahead() -> None:
    assert china_time("2026-11-21 07:07:00") == datetime(2026, 11, 20, 23, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21 15:07",
        "2026-11-21T15:07:00",
        "2026-11-21 15:07:00+00:00",
        "2026-11-21 15:07:00.123456",
        "2026-11-21 25:07:00",
        "0001-01-01 00:00:00",
    ],
)
def test_any_other_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        china_time(text)
