"""What the apps export can be imported, is documented, and needs nothing but the name."""

import importlib
import subprocess
import sys

import pytest

from idempotency import locks
from idempotency.locks import aio

WITHOUT_DJANGO = ("idempotency", "idempotency.webhooks", "payments", "payments.providers")
PUBLIC = (*WITHOUT_DJANGO, "payments.testing")


@pytest.mark.parametrize("app", PUBLIC)
def test_every_public_name_is_there_and_documented(app: str) -> None:
    module = importlib.import_module(app)
    assert sorted(module.__all__) == list(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__doc__, name
        assert name in dir(module)


@pytest.mark.parametrize("app", PUBLIC)
def test_an_unknown_name_is_an_attribute_error(app: str) -> None:
    module = importlib.import_module(app)
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = module.nothing_of_this_name


@pytest.mark.parametrize("app", WITHOUT_DJANGO)
def test_the_app_is_named_without_starting_django(app: str) -> None:
    """`INSTALLED_APPS` imports the package before any model may be."""
    code = f"import {app}, sys; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_locks_of_asyncio_have_the_names_of_those_of_threads() -> None:
    assert {*aio.__all__} == {*locks.__all__, "close"}
    assert aio.LockError is locks.LockError
