"""Errors of providers."""

import pickle

from payments.errors import ProviderRejected


def test_a_refusal_travels_between_processes() -> None:
    refused = pickle.loads(pickle.dumps(ProviderRejected("NOAUTH", "not allowed")))
    assert (str(refused), refused.code, refused.message) == ("NOAUTH: not allowed", "NOAUTH", "not allowed")
