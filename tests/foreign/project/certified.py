"""Certify acme against its side, whose address and key are given; print the certificate as JSON."""

import json
import sys
import urllib.request
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import urlencode

from acme import PLUGIN, Acme
from acme_side import MERCHANT

from payments.providers import Settings
from payments.testing import Charge, certify


@dataclass
class Side:
    """acme's side as a simulator."""

    url: str
    key: str
    mistakes: frozenset[str] = frozenset({"amount", "currency", "merchant"})
    stale_after: timedelta | None = timedelta(seconds=300)

    def settings(self, *, url: str, notify_url: str) -> Settings:
        return {"API_URL": url, "MERCHANT": MERCHANT, "KEY": self.key}

    def pay(self, out_trade_no: str, *, copies: int = 1, mistake: str = "", late: bool = False) -> bool:
        how = {"copies": copies, "mistake": mistake} | ({"late": 1} if late else {})
        asked = urllib.request.Request(f"{self.url}/shopper/{out_trade_no}?{urlencode(how)}", method="POST")
        with urllib.request.urlopen(asked) as answer:
            return bool(json.load(answer))

    def charge(self, out_trade_no: str) -> Charge:
        with urllib.request.urlopen(f"{self.url}/shopper/{out_trade_no}") as answer:
            found = json.load(answer)
        return Charge(**{name: found[name] for name in ("paid_minor", "refunded_minor", "currency", "merchant")})


class Prefixed(Acme):
    """For an acme whose numbers begin with a letter."""

    def number(self, ours: str) -> str:
        return f"K{ours.upper()}"

    def read_number(self, theirs: str) -> str:
        return theirs.removeprefix("K").lower()


if __name__ == "__main__":
    side = Side(*sys.argv[1:])
    certificate = certify(PLUGIN, side)
    prefixed = certify(replace(PLUGIN, build=Prefixed), side)
    assert prefixed == certificate, prefixed
    print(json.dumps({"passed": certificate.passed, "skipped": dict(certificate.skipped)}))
