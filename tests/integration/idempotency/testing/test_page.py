"""The examples of docs/how-to/test-your-views.md run in a project's suite."""

import importlib
import re
import unittest

import pytest
from django.contrib.auth.models import Group
from django.test import RequestFactory

from idempotency.testing import assert_once
from tests import pages
from tests.integration.idempotency.testing import views

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.testing.views"),
]

PAGE = "docs/how-to/test-your-views.md"
CASES, FIXTURES = pages.blocks(PAGE)


@pytest.mark.parametrize("case", ["OrderTests", "OnceTests"])
def test_the_cases(case: str) -> None:
    names = pages.run(CASES, Order=Group)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(names[case]).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_the_plugin() -> None:
    (plugin,) = pages.run(FIXTURES)["pytest_plugins"]
    assert hasattr(importlib.import_module(plugin), "keyed_client")


def test_the_failure() -> None:
    (quoted,) = re.findall(r"^> (.*) …$", pages.text_of(PAGE), re.MULTILINE)
    with pytest.raises(AssertionError, match=f"^{re.escape(quoted)}"):
        assert_once(views.not_keyed, RequestFactory().post("/orders/"), effects=Group.objects.count)
