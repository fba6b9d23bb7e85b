"""REST framework's door, and the resource of one-time tokens, where drf-spectacular is not installed."""

import json
import subprocess
import sys

import pytest
from django.contrib.auth.models import Group, User

from tests.integration.idempotency.functions.work import ROOT
from tests.processes import on_the_tests_database


@pytest.mark.django_db(transaction=True)
def test_it_keys_and_issues_tokens_without_spectacular(user: User) -> None:
    command = [sys.executable, "-m", "tests.integration.idempotency.protocol.rest_alone"]
    done = subprocess.run(
        command, cwd=ROOT, env=on_the_tests_database(), capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    *pairs, missing = done.stdout.splitlines()[-3:]
    made = list(Group.objects.order_by("name").values_list("pk", flat=True))
    assert [json.loads(pair) for pair in pairs] == [
        [[201, {"id": pk}, False], [201, {"id": pk}, True]] for pk in made
    ]
    assert (len(made), missing) == (2, "idempotency_key_missing")
