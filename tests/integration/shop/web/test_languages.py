"""Chinese and English: by `Accept-Language`, by the switch, and with no sentence left out."""

import ast
import gettext
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.utils.translation import gettext as gettext_of
from django.utils.translation import override
from django.utils.translation.template import templatize
from drf_spectacular.generators import SchemaGenerator

from idempotency.admin.labels import english
from shop.models import Product

ROOT = Path(__file__).resolve().parents[4]
APPS = ("idempotency", "payments", "shop")
MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop"}
WITH_CONTEXT = {"pgettext", "pgettext_lazy"}
OF_DJANGO = {
    "After you’ve created a user, you’ll be able to edit more user options.",
    "Model name",
    "Add link",
    "Change or view list link",
    "Error:",
    "Filter by %(field_name)s",
    "Logout",
    'The app "%s" could not be found.',
}  # its admin's, which it has in English alone
SAME_IN_CHINESE = {"Stripe", "ISO 4217", "UTC"}

IN_TEMPLATE = re.compile(
    r"""gettext\((?:u?"((?:[^"\\]|\\.)*)"|u?'((?:[^'\\]|\\.)*)')\)|_\("((?:[^"\\]|\\.)*)"\)"""
)
OF_CODES = re.compile(r"(code: )?(`\w+`(, )?)+|\* `.*|[a-z]+_\w+|")  # lines of the API's description: no words
WITH_CONTEXT_IN_TEMPLATE = re.compile(r"""pgettext\(u?(['"])(.*?)\1, u?(['"])(.*?)\3\)""")


def marked_in(module: Path) -> Iterator[str]:
    """What a module marks for translation; what has a context, as catalogues name it."""
    for node in ast.walk(ast.parse(module.read_text())):
        if not isinstance(node, ast.Call):
            continue
        taken = {**dict.fromkeys(MARKS, 1), **dict.fromkeys(WITH_CONTEXT, 2)}.get(getattr(node.func, "id", ""), 0)
        texts = [text.value for text in node.args[:taken] if isinstance(text, ast.Constant)]
        if taken and len(texts) == taken:
            yield "\x04".join(map(str, texts))


def marked(app: str) -> set[str]:
    """What an app's modules and templates mark for translation."""
    found = {text for module in (ROOT / app).rglob("*.py") for text in marked_in(module)}
    for template in (ROOT / app / "templates").rglob("*.*"):
        text = templatize(template.read_text())
        for parts in IN_TEMPLATE.findall(text):
            found.add("".join(parts).replace("\\n", "\n").replace('\\"', '"'))
        found |= {f"{context}\x04{words}" for _, context, _, words in WITH_CONTEXT_IN_TEMPLATE.findall(text)}
    found |= set(names_of(app))
    if app == "shop":
        found |= described("en")
    return found - {"", "ID"}


def names_of(app: str) -> Iterator[str]:
    """List names of an app's models that the admin shows, and of their fields."""
    shown = {*admin.site._registry, *(one.model for page in admin.site._registry.values() for one in page.inlines)}
    for model in shown & set(apps.get_app_config(app).get_models()):
        for attribute in ("verbose_name", "verbose_name_plural"):
            yield f"model\x04{english(model._meta, attribute)}"
        yield from (words for _codename, words in model._meta.permissions)
        for field in model._meta.local_fields:
            yield from (english(field, "verbose_name"), english(field, "help_text"))
            with override(None):
                yield from (str(words) for _value, words in field.flatchoices)


def described(language: str) -> set[str]:
    """Collect what the API's description says, line by line."""

    def said(node: Any) -> Iterator[str]:
        for name, one in node.items() if isinstance(node, dict) else enumerate(node):
            if name in {"summary", "description", "detail"} and isinstance(one, str):
                yield from one.split("\n")
            elif isinstance(one, dict | list):
                yield from said(one)

    with override(language):
        generator: Any = SchemaGenerator  # which has no types
        document = generator().get_schema(request=None, public=True)
    return {line for line in said(document) if not OF_CODES.fullmatch(line)}


def test_the_api_is_described_in_chinese() -> None:
    assert described("en") & described("zh-hans") <= SAME_IN_CHINESE
    assert len(described("en")) > 70


@pytest.mark.parametrize("app", APPS)
def test_no_sentence_is_left_in_english(app: str) -> None:
    folder = ROOT / app / "locale" / "zh_Hans" / "LC_MESSAGES"
    assert "fuzzy" not in (folder / "django.po").read_text()
    with (folder / "django.mo").open("rb") as compiled:
        chinese = gettext.GNUTranslations(compiled)
    every = marked(app)
    catalogue = {text for text in chinese._catalog if isinstance(text, str)} - {""}
    assert catalogue - every - OF_DJANGO == set(), "nothing uses these any more"
    assert {one for one in every if chinese.gettext(one) == one} <= SAME_IN_CHINESE


def test_the_apps_share_their_terms() -> None:
    """Django shows one Chinese for an English text, whichever app has it."""
    terms = defaultdict[str, set[str]](set)
    for app in APPS:
        with (ROOT / app / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.mo").open("rb") as compiled:
            for english, chinese in gettext.GNUTranslations(compiled)._catalog.items():
                if isinstance(english, str) and english:
                    terms[english].add(chinese)
    assert {english: chinese for english, chinese in terms.items() if len(chinese) > 1} == {}


@pytest.mark.django_db
def test_a_problem_is_in_the_callers_language(demo: User, settings: Any) -> None:
    client = Client()
    client.force_login(demo)
    for asked, detail in {"zh-CN": "商品“nothing”不存在。", "en": "There is no product 'nothing'."}.items():
        answer = client.get("/api/v1/products/nothing", headers={"Accept-Language": asked})
        assert (answer.status_code, answer.json()["detail"]) == (404, detail)
        assert answer.json()["code"] == "product_not_found"
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 9  # refused before the language is known to Django
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    answer = client.generic("POST", "/api/v1/orders", b"0123456789", HTTP_ACCEPT_LANGUAGE="zh-CN", **chunked)
    assert (answer.status_code, answer.json()["detail"]) == (413, "请求体超过本服务允许的大小。")


@pytest.mark.django_db
def test_the_browsers_language_is_spoken() -> None:
    for asked, language, words in (
        ("zh-CN,zh;q=0.9", "zh-hans", "好物，只付一次。"),
        ("en-GB,en;q=0.9", "en", "Good things, paid once."),
        ("fr", "en", "Good things, paid once."),
    ):
        page = Client().get("/", headers={"Accept-Language": asked}).text
        assert f'<html lang="{language}">' in page
        assert words in page
        for name in ("English", "简体中文"):
            assert f">{name}</button>" in page  # each in its own words, so that it is found by who needs it
    missing = Client().get("/products/nothing", headers={"Accept-Language": "zh-CN"})
    assert (missing.status_code, "商品不存在" in missing.text) == (404, True)


def test_our_words_win_over_those_of_djangos_admin() -> None:
    with override("zh-hans"):
        assert gettext_of("Log out") == "退出", "not 注销, which deletes an account"


@pytest.mark.django_db
def test_a_product_is_named_in_the_callers_language(demo: User) -> None:
    chinese = {"name_zh": "搪瓷杯", "description_zh": "双层搪瓷。"}
    Product.objects.create(
        sku="cup", name="Enamel mug", description="Two coats.", price_minor=1990, stock=1, **chinese
    )
    Product.objects.create(sku="bowl", name="Bowl", price_minor=1990, stock=1)
    client = Client()
    client.force_login(demo)
    for asked, words in {"zh-CN": ("搪瓷杯", "双层搪瓷。"), "en": ("Enamel mug", "Two coats.")}.items():
        speaking = {"Accept-Language": asked}
        page = client.get("/products/cup", headers=speaking).text
        assert all(word in page for word in words)
        assert words[0] in client.get("/", headers=speaking).text
        assert client.get("/api/v1/products/cup", headers=speaking).json()["name"] == words[0]
        assert client.get("/api/v1/products/bowl", headers=speaking).json()["name"] == "Bowl", (
            "for want of another"
        )
