"""Chinese and English: by `Accept-Language`, by the switch, and with no sentence left out."""

import gettext
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.translation import gettext as gettext_of
from django.utils.translation import override

SHOP = Path(__file__).resolve().parents[4] / "shop"
CATALOGUE = SHOP / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.mo"

IN_TEMPLATE = re.compile(r"""{%\s*translate\s+(?:"([^"]+)"|'([^']+)')""")
IN_MODULE = re.compile(r"""(?<![\w.])_\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)""")


def sentences() -> set[str]:
    """What the pages and modules of the shop have translated."""
    found = set()
    for template in (SHOP / "templates").rglob("*.html"):
        found |= {one or other for one, other in IN_TEMPLATE.findall(template.read_text())}
    for module in SHOP.rglob("*.py"):
        for parts in IN_MODULE.findall(module.read_text()):
            found.add("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', parts)))
    return found


def test_no_sentence_is_left_in_english() -> None:
    with CATALOGUE.open("rb") as compiled:
        chinese = gettext.GNUTranslations(compiled)
    every = sentences()
    assert len(every) > 100
    assert {one for one in every if chinese.gettext(one) == one} <= {"Stripe", "ISO 4217"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asked", "language", "words"),
    [
        ("zh-CN,zh;q=0.9", "zh-hans", "好物，只付一次。"),
        ("en-GB,en;q=0.9", "en", "Good things, paid once."),
        ("fr", "en", "Good things, paid once."),
    ],
)
def test_the_browsers_language_is_spoken(asked: str, language: str, words: str) -> None:
    page = Client().get("/", headers={"Accept-Language": asked}).content.decode()
    assert f'<html lang="{language}">' in page
    assert words in page
    for name in ("English", "简体中文"):
        assert f">{name}</button>" in page  # each in its own words, so that it is found by who needs it


@pytest.mark.django_db
def test_the_switch_is_remembered_and_leads_back() -> None:
    client = Client(enforce_csrf_checks=True)
    page = client.get("/accounts/login/", headers={"Accept-Language": "en"}).content.decode()
    (token,) = set(
        re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page[page.index('class="languages"') :])
    )
    answer = client.post(
        "/i18n/setlang/",
        {"language": "zh-hans", "csrfmiddlewaretoken": token},
        headers={"Referer": "http://testserver/accounts/login/"},
    )
    assert (answer.status_code, answer.headers["Location"]) == (302, "http://testserver/accounts/login/")
    assert "用户名" in client.get("/accounts/login/", headers={"Accept-Language": "en"}).content.decode()


def test_our_words_win_over_those_of_djangos_admin() -> None:
    with override("zh-hans"):
        assert gettext_of("Log out") == "退出", "not 注销, which deletes an account"


def test_a_moment_is_written_as_the_language_writes_it() -> None:
    """Without a script; with one, the browser writes it."""
    moment = datetime(2026, 11, 22, 14, 41, tzinfo=UTC)
    shown = {"en": ">22 Nov 2026, 14:41 UTC<", "zh-hans": ">2026年11月22日 14:41 UTC<"}
    for language, words in shown.items():
        with override(language):
            assert words in render_to_string("shop/moment.html", {"moment": moment})


@pytest.mark.django_db
def test_a_refusal_is_told_in_the_callers_language() -> None:
    page = Client().get("/products/nothing", headers={"Accept-Language": "zh-CN"})
    assert page.status_code == 404
    assert "商品不存在" in page.content.decode()
