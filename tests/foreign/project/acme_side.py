"""acme, a payment provider: a server of its own that needs nothing installed, and records what moved.

Every request is signed with HMAC-SHA256 under the merchant's key, in the header ``Acme-Signature``: over
``METHOD PATH``, a line break and the body. A notification is over ``Acme-Time``, a dot and the body. ``/shopper/…`` is
unsigned: the shopper's browser, and the witness of the tests.
"""

import hashlib
import hmac
import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

SIGNATURE, TIME = "Acme-Signature", "Acme-Time"
MERCHANT = "m-1"
UNKNOWN: dict[str, Any] = {"status": "unknown", "moves": []}

Document = dict[str, Any]


class Refused(Exception):
    """Refusal, with its sentence."""


class Books:
    """Everything that acme knows. Thread-safe; one call at a time.

    Args:
        key: of the merchant.
    """

    def __init__(self, key: bytes) -> None:
        self.key = key
        self._guard = threading.Lock()
        self._payments: dict[str, Document] = {}
        self._refunds: dict[str, Document] = {}
        self._asked: dict[str, bytes] = {}
        self._acknowledged: Counter[str] = Counter()  # by number of the movement

    def serve(self, method: str, path: str, body: bytes) -> Document:
        """Answer one call of the merchant."""
        kind, number = path.strip("/").split("/")
        with self._guard:
            if method == "PUT" and self._asked.setdefault(path, body) != body:
                raise Refused("this number was used for something else")
            match kind, method:
                case "payments", "PUT":
                    return self._opened(number, json.loads(body))
                case "payments", "GET":
                    return self._payments.get(number, {**UNKNOWN, "number": number})
                case "payments", "DELETE":
                    return self._closed(number)
                case "refunds", "PUT":
                    return self._refunded(number, json.loads(body))
                case "refunds", "GET":
                    return self._refunds.get(number, {**UNKNOWN, "number": number})
                case "days", "GET":
                    made = [*self._payments.values(), *self._refunds.values()]
                    moves = [move for one in made for move in one["moves"] if move["at"].startswith(number)]
                    return {"number": number, "moves": [move for move in moves if move["amount"]]}
        raise Refused("no such call")

    def pay(self, number: str, *, copies: int = 1, mistake: str = "", late: bool = False) -> bool:
        """Pay as the shopper; False where that is no more possible."""
        with self._guard:
            found = self._payments.get(number)
            if found is None or found["status"] not in ({"open", "closed"} if late else {"open"}):
                return False
            moved = _move(found, "paid", found["amount"], number)
            moved |= {
                "amount": {"amount": 1},
                "currency": {"currency": "EUR"},
                "merchant": {"merchant": "m-2"},
            }.get(mistake, {})
            found |= {"status": "paid", "moves": [moved]}
        self._notify(found["notify"], moved, copies)
        return True

    def charge(self, number: str) -> Document:
        """Say what moved under a payment's number."""
        with self._guard:
            (paid,) = self._payments[number]["moves"] or [{"id": "", "amount": 0, "currency": "", "merchant": ""}]
            back = [one["moves"][0]["amount"] for one in self._refunds.values() if one["payment"] == number]
            return {
                "paid_minor": paid["amount"],
                "refunded_minor": sum(back),
                "currency": paid["currency"],
                "merchant": paid["merchant"],
                "acknowledged": self._acknowledged[paid["id"]],
            }

    def _opened(self, number: str, wanted: Document) -> Document:
        if number not in self._payments:
            self._payments[number] = {**wanted, "number": number, "status": "open", "moves": []}
        return self._payments[number]

    def _closed(self, number: str) -> Document:
        found = self._payments.setdefault(number, {"number": number, "status": "open", "currency": "CNY"})
        if found["status"] == "open":
            found |= {"status": "closed", "moves": [_move(found, "closed", 0, number) | {"id": number}]}
        return found

    def _refunded(self, number: str, wanted: Document) -> Document:
        if number in self._refunds:
            return self._refunds[number]
        paid = self._payments.get(wanted["payment"], UNKNOWN)
        back = [one["moves"][0]["amount"] for one in self._refunds.values() if one["payment"] == wanted["payment"]]
        if wanted["amount"] > sum(move["amount"] for move in paid["moves"]) - sum(back):
            raise Refused("more than was paid")
        moved = _move(paid, "refunded", wanted["amount"], wanted["payment"], refund=number)
        self._refunds[number] = {**wanted, "number": number, "status": "done", "moves": [moved]}
        self._notify(paid["notify"], moved, 1)
        return self._refunds[number]

    def _notify(self, url: str, moved: Document, copies: int) -> None:
        event = {"id": f"n-{moved['id']}", "type": moved["kind"], "moves": [moved]}
        for _ in range(copies):
            threading.Thread(target=self._send, args=(url, event), daemon=True).start()

    def _send(self, url: str, event: Document) -> None:
        """Send one copy; it is sent again until it is acknowledged, as providers do."""
        for seconds in (0.2, 1.0, 5.0, 0.0):
            body, at = json.dumps(event).encode(), str(int(time.time()))
            signed = signature(self.key, f"{at}.".encode() + body)
            headers = {SIGNATURE: signed, TIME: at, "Content-Type": "application/json"}
            try:
                urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30).close()
            except OSError:
                time.sleep(seconds)
            else:
                with self._guard:
                    self._acknowledged[event["moves"][0]["id"]] += 1
                return


def _move(paid: Document, kind: str, amount: int, number: str, *, refund: str = "") -> Document:
    return {
        "id": uuid4().hex,
        "kind": kind,
        "payment": number,
        "refund": refund,
        "amount": amount,
        "currency": paid["currency"],
        "merchant": MERCHANT,
        "at": datetime.now(UTC).isoformat(),
    }


def signature(key: bytes, signed: bytes) -> str:
    """Sign."""
    return hmac.new(key, signed, hashlib.sha256).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """HTTP in front of the books."""

    protocol_version = "HTTP/1.1"
    books: Books

    def handle_any(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        if address.path.startswith("/shopper/"):
            self.answer(200, self.as_shopper(address.path.rpartition("/")[2], parse_qs(address.query)))
            return
        signed = f"{self.command} {self.path}\n".encode() + body
        if not hmac.compare_digest(self.headers.get(SIGNATURE, ""), signature(self.books.key, signed)):
            self.answer(401, {"refused": "not signed with the merchant's key"})
            return
        try:
            made = self.books.serve(self.command, address.path, body)
            page = f"http://{self.headers['Host']}/shopper/{made['number']}"
            self.answer(200, {**made, "page": page} if "amount" in made else made)
        except Refused as refused:
            self.answer(409, {"number": address.path.rpartition("/")[2], "refused": str(refused)})

    def as_shopper(self, number: str, how: dict[str, list[str]]) -> object:
        """Show what was charged (GET), or pay (POST)."""
        if self.command == "GET":
            return self.books.charge(number)
        given = {name: values[0] for name, values in how.items()}
        return self.books.pay(
            number, copies=int(given.get("copies", 1)), mistake=given.get("mistake", ""), late="late" in given
        )

    def answer(self, status: int, document: object) -> None:
        """Send an answer."""
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815  the base class' names

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


if __name__ == "__main__":
    Handler.books = Books(sys.argv[1].encode())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
