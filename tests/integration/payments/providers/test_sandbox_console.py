"""The sandbox's console: buttons for faults and for the shopper's acts."""

import gettext
import re
from pathlib import Path

import pytest

from payments.sandbox import console
from payments.sandbox.stripe import cards
from tests.integration.payments.providers.conftest import waiting
from tests.languages import latin_in
from tests.sandbox import Sandbox

FOLDER = Path(console.__file__).parent
SWITCHES = {
    "user_paying": True,
    "delay_ms": 10_000,
    "duplicates": 10,
    "reorder": True,
    "wrong_amount": True,
    "timeout_after_success": 1,
}


@pytest.fixture
def number(sandbox: Sandbox) -> str:
    return waiting(sandbox, description="Mug · 79D332")


def press(sandbox: Sandbox, address: str, **fields: str) -> str:
    return sandbox.http.post(address, data=fields, follow_redirects=True).raise_for_status().text


def test_a_switch_turns_its_fault_on_and_off(sandbox: Sandbox) -> None:
    at_rest = sandbox.faults()
    for fault, value in SWITCHES.items():
        pressed = press(sandbox, f"/console/faults/{fault}")
        assert sandbox.faults() == at_rest | {fault: value}
        assert pressed.count('aria-pressed="true"') == 1
        assert 'aria-pressed="true"' not in press(sandbox, f"/console/faults/{fault}")
        assert sandbox.faults() == at_rest
    sandbox.faults(refund_429=True)
    page = sandbox.http.get("/").text
    assert "refund_429=True" in page, "also set"
    assert set(re.findall(r'action="/console/faults/(\w+)"', page)) == set(SWITCHES)
    assert sandbox.http.post("/console/faults/seed").status_code == 404


def test_pay_decline_and_cancel(sandbox: Sandbox, number: str) -> None:
    assert "Mug · 79D332" in sandbox.http.get("/").text
    assert "The bank declined it. Nothing was charged" in press(sandbox, f"/pay/{number}/decline")
    assert sandbox.charges()[number]["charged_minor"] == 0
    for _ in range(2):
        assert "<h1>Console</h1>" in press(sandbox, f"/pay/{number}", console="1")
    assert sandbox.charges()[number]["charged_minor"] == 1990
    assert "Paid." in press(sandbox, f"/pay/{number}/cancel"), "too late"
    other = waiting(sandbox)
    assert "This order is closed and cannot be paid" in press(sandbox, f"/pay/{other}/cancel")
    press(sandbox, f"/pay/{other}", console="1")
    assert sandbox.charges()[other]["charged_minor"] == 0
    assert sandbox.http.post("/pay/nothing/cancel").status_code == 404


CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}


def test_a_shopper_pays_in_the_browsers_language(sandbox: Sandbox, number: str) -> None:
    page = f"/pay/{number}"
    english = sandbox.http.get(page).text
    assert ('<html lang="en">' in english, "Pay ¥19.90" in english) == (True, True)
    for language in ("fr", "en,zh;q=0.5"):
        assert "Pay ¥19.90" in sandbox.http.get(page, headers={"Accept-Language": language}).text
    chinese = sandbox.http.get(page, headers=CHINESE).text
    for said in ('<html lang="zh-Hans">', "支付 ¥19.90", "拒绝", "取消", "沙箱，不涉及真实资金"):
        assert said in chinese
    declined = sandbox.http.post(f"{page}/decline", headers=CHINESE, follow_redirects=True).text
    assert "银行拒绝了这笔付款。" in declined
    paid = sandbox.http.post(page, headers=CHINESE, follow_redirects=True).text
    assert "已支付。" in paid
    assert latin_in(paid, ["Mug"]) == []


def test_every_sentence_of_a_page_is_in_chinese() -> None:
    said = {*cards.SENTENCES.values(), *(card["effect"] for card in cards.choices())}
    said |= {sentence for switch in console.SWITCHES for sentence in (switch.label, switch.effect)}
    for page in ("base", "home", "pay", "link_over", "unknown"):
        source = (FOLDER / "templates" / f"{page}.html").read_text()
        said |= set(re.findall(r'{% translate "([^"]+)"', source))
        blocks = re.findall(r"{% blocktranslate [^%]+ %}([^%]+){% endblock", source)
        said |= {re.sub(r"{{ (\w+) }}", r"%(\1)s", block) for block in blocks}
    with (FOLDER / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.mo").open("rb") as compiled:
        chinese = gettext.GNUTranslations(compiled)
    assert len(said) > 40
    assert [sentence for sentence in said if not re.search("[一-鿿]", chinese.gettext(sentence))] == []
