"""Finds keys, tokens, payers and card numbers, however they are written."""

import base64
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_DIGITS = re.compile(r"(?<![0-9A-Za-z_.-])\d(?:[ -]?\d){12,18}(?![0-9A-Za-z_.-])")
_AUTHORIZATION = re.compile(r"WECHATPAY2-SHA256-RSA2048 mchid=|Bearer [sr]k_|Token [0-9a-f]{40}")
_LAST4 = re.compile(r"last4\b.{1,20}?\d{4}")  # too short for a needle
_PEM_LINE = re.compile(r"^[A-Za-z0-9+/]{40,64}={0,2}$", re.MULTILINE)
_PRIVATE = "PRIVATE KEY-----"

SHORTEST = 8  # a shorter value is found everywhere


@dataclass(frozen=True, slots=True)
class Found:
    """A needle by its name, never by its value, and where it stood."""

    needle: str
    where: str
    position: int


class Scanner:
    """Looks for every one of `needles`.

    Args:
        needles: name -> value.
        known_numbers: ids that pass for card numbers by chance.
    """

    def __init__(self, needles: Mapping[str, str], *, known_numbers: Collection[str] = ()) -> None:
        assert all(len(value) >= SHORTEST for value in needles.values()), "a needle is too short to mean anything"
        self.needles = dict(needles)
        self.known_numbers = set(known_numbers)
        self._written = [(name, form) for name, value in needles.items() for form in forms(value)]

    def look(self, where: str, text: str) -> list[Found]:
        """Everything that is found in `text`, which is called `where`."""
        found = [Found(name, where, text.find(form)) for name, form in self._written if form in text]
        found += [Found("an Authorization header", where, hit.start()) for hit in _AUTHORIZATION.finditer(text)]
        found += [Found("a card's last digits", where, hit.start()) for hit in _LAST4.finditer(text)]
        found += [Found("a private key", where, text.find(_PRIVATE))] if _PRIVATE in text else []
        found += [Found("a card number", where, hit.start()) for hit in self._cards(text)]
        return found

    def _cards(self, text: str) -> Iterator[re.Match[str]]:
        for hit in _DIGITS.finditer(text):
            digits = re.sub(r"\D", "", hit.group())
            # an id with an amount after it looks like a card number in groups
            ours = self.known_numbers.intersection([digits, *re.split("[ -]", hit.group())])
            if not ours and digits[0] in "23456" and luhn(digits):
                yield hit


def forms(value: str) -> set[str]:
    """List the ways to write a value: plain, base64, hexadecimal, in an address, in JSON."""
    raw = value.encode()
    written = {value, base64.b64encode(raw).decode().rstrip("="), raw.hex(), quote(value, safe="")}
    return written | {json.dumps(value)[1:-1], repr(value)[1:-1]}


def luhn(digits: str) -> bool:
    """Whether its check digit is right, as that of every card number."""
    doubled = [int(digit) * (2 if place % 2 else 1) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


def private_key_needles(folder: Path) -> dict[str, str]:
    """Take every eighth line of each private key under `folder`: a leak shows more than seven."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in {".pem", ".key"} and _PRIVATE in (text := path.read_text()):
            for number, line in enumerate(_PEM_LINE.findall(text)[1::8], 1):
                found[f"{path.name}, needle {number}"] = line
    return found


def payer_needles(documents: Collection[object]) -> dict[str, str]:
    """The payer, by what the providers' documents say at any depth."""
    found: dict[str, str] = {}
    for document in documents:
        for name, value in _members(document):
            if name in PAYER_MEMBERS and isinstance(value, str) and len(value) >= SHORTEST:
                found[f"{name} {len(found)}"] = value
    return {name: value for value, name in {value: name for name, value in found.items()}.items()}


PAYER_MEMBERS = frozenset(
    {"openid", "sub_openid", "buyer_id", "buyer_logon_id", "buyer_open_id", "buyer_user_id", "client_secret"}
    | {"name", "email", "phone", "fingerprint"}  # of Stripe's charges
)


def _members(document: object) -> Iterator[tuple[str, object]]:
    if isinstance(document, dict):
        for name, value in document.items():
            yield name, value
            yield from _members(value)
    elif isinstance(document, list):
        for each in document:
            yield from _members(each)
