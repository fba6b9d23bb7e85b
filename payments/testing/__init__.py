"""Tests of a provider: `certify` proves a plug-in against a simulator of its provider.

Needs neither pytest nor Django's settings nor a database: it drives a `payments.providers.base.Provider` alone.
"""

from payments.testing.bench import Charge, Simulator
from payments.testing.certificate import Certificate, NotCertified, certify

__all__ = ["Certificate", "Charge", "NotCertified", "Simulator", "certify"]
