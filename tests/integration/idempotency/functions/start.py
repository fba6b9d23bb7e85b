"""Start Django, then evaluate the call that the command line has."""

import sys

import django

if __name__ == "__main__":
    django.setup()
    from tests.integration.idempotency.functions.work import evaluate

    evaluate(sys.argv[1])
