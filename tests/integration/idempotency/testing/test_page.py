"""The examples of docs/how-to/test-your-views.md run in a project's suite, and its failure is the real one."""

import importlib
import re
import unittest
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import RequestFactory

from idempotency.testing import assert_once
from tests.integration.idempotency.functions.work import ROOT
from tests.integration.idempotency.testing import views

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.integration.idempotency.testing.views"),
]

PAGE = (ROOT / "docs" / "how-to" / "test-your-views.md").read_text()
CASES, FIXTURES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("case", ["OrderTests", "OnceTests"])
def test_the_cases(case: str) -> None:
    names: dict[str, Any] = {"Order": Group, "__name__": __name__}
    exec(compile(CASES, "page", "exec"), names)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(names[case]).run(result)
    assert (result.testsRun, result.errors, result.failures) == (1, [], [])


def test_the_plugin() -> None:
    names: dict[str, Any] = {}
    exec(FIXTURES, names)
    (plugin,) = names["pytest_plugins"]
    assert hasattr(importlib.import_module(plugin), "keyed_client")


def test_the_failure() -> None:
    (quoted,) = re.findall(r"^> (.*) …$", PAGE, re.MULTILINE)
    with pytest.raises(AssertionError, match=f"^{re.escape(quoted)}"):
        assert_once(views.not_keyed, RequestFactory().post("/orders/"), effects=Group.objects.count)
