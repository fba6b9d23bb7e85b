"""A sandbox that nobody talks to sleeps: none of its threads wakes up before something is to be done."""

import re
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.payments.providers.conftest import Listener, waiting
from tests.running import until
from tests.sandbox import Sandbox

WATCHED_SECONDS = 2.5  # longer than any period after which a server would look around by itself


def sleeps(sandbox: Sandbox) -> dict[str, int]:
    """How often each of its threads has gone to sleep so far: again, each time that it woke up to look around."""
    main = psutil.Process(sandbox.pid)
    threads = [
        status
        for process in (main, *main.children(recursive=True))
        for status in Path(f"/proc/{process.pid}/task").glob("*/status")
    ]
    found = {str(one): re.search(r"^voluntary_ctxt_switches:\s+(\d+)", one.read_text(), re.M) for one in threads}
    return {name: int(count[1]) for name, count in found.items() if count}


def stays_asleep(sandbox: Sandbox) -> bool:
    before = sleeps(sandbox)
    time.sleep(WATCHED_SECONDS)
    return sleeps(sandbox) == before


def delivered(sandbox: Sandbox) -> int:
    """Count acknowledged copies; `due` may also hold those of other tests, whose listeners are closed."""
    return int(sandbox.http.get("/_control/deliveries").json()["done"])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc that counts a thread's sleeps")
def test_no_thread_wakes_up_while_nobody_asks(sandbox: Sandbox) -> None:
    sandbox.http.get("/healthz").raise_for_status()
    until(lambda: stays_asleep(sandbox))


def test_what_is_queued_is_sent_at_its_time(sandbox: Sandbox, listener: Listener) -> None:
    number = waiting(sandbox, notify_url=listener.url)
    done = delivered(sandbox)
    sandbox.faults(delay_ms=200)
    sandbox.pay(number)
    assert listener.next()[0]["Wechatpay-Serial"]
    until(lambda: delivered(sandbox) > done)
