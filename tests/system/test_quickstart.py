"""The quickstart of `/api/docs/`: each of its blocks, as it stands on the page, makes a paid order."""

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.conftest import a_folder_of_its_own
from tests.running import RunningShop

RUN = {"curl": ["bash", "-e"], "Python": [sys.executable, "-"], "JavaScript": ["node", "--input-type=module", "-"]}


@pytest.fixture(scope="module")
def shop() -> Iterator[RunningShop]:
    with a_folder_of_its_own() as folder:
        running = RunningShop(folder)
        yield running
        assert running.stop() == 0


def blocks(shop: RunningShop) -> dict[str, str]:
    page = httpx.get(f"{shop.url}/api/docs/", trust_env=False).text
    found = re.findall(r'<pre[^>]*data-quickstart="(\w+)">(.*?)</pre>', page, re.DOTALL)
    return {name: html.unescape(code) for name, code in found}


@pytest.mark.parametrize("name", sorted(RUN))
def test_a_block_makes_a_paid_order(shop: RunningShop, name: str) -> None:
    program = RUN[name][0]
    if shutil.which(program) is None:
        pytest.skip(f"no {program} on this machine; get it with: apt-get install nodejs")
    code = blocks(shop)[name]
    done = subprocess.run(RUN[name], input=code, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    (order_id,) = re.findall(r"^paid: ([0-9a-f]{32})$", done.stdout, re.MULTILINE)
    with shop.api() as api:
        assert api.get(f"/api/v1/orders/{order_id}").json()["status"] == "paid"
    assert set(blocks(shop)) == set(RUN)
