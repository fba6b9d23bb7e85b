"""A table of failures: each command, provider and place, over real HTTP.

Once a command may have left, only a verified word about that command ends it. A question that fails is no such word:
the refund stays reserved, nobody can withdraw it, and no second one goes out.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.utils import timezone
from rest_framework.test import APIClient

from idempotency.models import LedgerEntry
from payments.attempts import calling, closing, submission
from payments.channels import limits
from payments.errors import (
    OutcomeUnknown,
    ProviderError,
    ProviderRejected,
    ProviderUnavailable,
    RefundExceedsPaid,
)
from payments.models import Anomaly, Attempt, Payment, Refund
from payments.providers import deadlines
from payments.providers.actions import PayMethod
from payments.refunds import steps as refunds
from tests.integration.payments.channels.conftest import channels
from tests.integration.payments.conftest import OpenAttempt, fold, number_of, paid, payment_of, refund_asked
from tests.payments_settings import limited
from tests.running import until
from tests.threads import in_background, waiting_for_locks
from tests.unit.payments.providers.conftest import (
    Answer,
    Company,
    Says,
    alipay_says,
    company,
    signed,
    stripe_lists,
    stripe_says,
)

__all__ = ["channels", "company"]

CHANNELS = ("wechat", "alipay", "stripe")
PART_MINOR = 500


def stripe_error(code: str, status: int) -> Says:
    return stripe_says({"error": {"type": "invalid_request_error", "message": "no", "code": code}}, status=status)


# signed, and about the call itself: it did nothing
TURNED_AWAY: dict[str, dict[str, Callable[[], Says]]] = {
    "wechat": {
        "429": lambda: signed({"code": "FREQUENCY_LIMITED"}, status=429),
        "401": lambda: signed({"code": "SIGN_ERROR"}, status=401),
    },
    "alipay": {
        "40005": lambda: alipay_says("error", {"code": "40005", "sub_code": "isv.app-call-limited"}),
        "40006": lambda: alipay_says("error", {"code": "40006", "sub_code": "isv.insufficient-permissions"}),
        "20001": lambda: alipay_says("error", {"code": "20001", "sub_code": "aop.invalid-auth-token"}),
        "signature": lambda: alipay_says("error", {"code": "40002", "sub_code": "isv.invalid-signature"}),
    },
    "stripe": {
        "429": lambda: stripe_error("rate_limit", 429),
        "401": lambda: stripe_error("api_key_expired", 401),
    },
}
REFUSED: dict[str, dict[str, Callable[[], Says]]] = {
    "wechat": {"403": lambda: signed({"code": "NO_AUTH", "message": "no"}, status=403)},
    "alipay": {
        "40002": lambda: alipay_says("error", {"code": "40002", "sub_code": "isv.invalid-app-id"}),
        "40004": lambda: alipay_says("error", {"code": "40004", "sub_code": "ACQ.TRADE_NOT_ALLOW_REFUND"}),
    },
    "stripe": {"400": lambda: stripe_error("something_new", 400)},
}
SILENT = ("timeout", "hung up", "500", "unreadable", "unsigned", "compressed")
UNSENT = ("connection refused", "no room")


@dataclass
class Script:
    """The provider's address, call after call; a call that is not scripted fails the test."""

    company: Company
    provider: Any
    settings: Any
    monkeypatch: pytest.MonkeyPatch
    steps: list[Any] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def play(self, *steps: Any) -> None:
        """Script the next calls; a step is an answer, or the name of the call's failure."""
        self.steps = list(steps)
        self.company.answer = self._answer
        if "no room" in steps:
            self._leave_room(steps.index("no room"))
        self._prepare()

    @property
    def refund_numbers(self) -> set[str]:
        """Under which refunds were asked for."""
        found = set()
        for path, body in zip([path for path, _ in self.company.asked], self.bodies, strict=True):
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            if path.endswith("/domestic/refunds"):
                found.add(json.loads(body)["out_refund_no"])
            elif form.get("method") == "alipay.trade.refund":
                found.add(json.loads(form["biz_content"])["out_request_no"])
            elif path == "/v1/refunds" and form:
                found.add(form["metadata[out_refund_no]"])
        return found

    def _answer(self, body: bytes) -> Answer:
        self.bodies.append(body)
        step = self.steps.pop(0)
        self._prepare()
        status, headers, content = self._failing(step) if isinstance(step, str) else step(body)
        if self.steps[:1] == ["connection refused"]:
            headers = {**headers, "Connection": "close"}
        return status, headers, content

    def _prepare(self) -> None:
        """For the next call, before it begins."""
        coming = self.steps[0] if self.steps else None
        if coming == "connection refused":
            self.company.stop()
        self.provider._http.timeout = 0.3 if coming == "timeout" else 30

    def _failing(self, step: str) -> Answer:
        if step == "timeout":
            assert self.over.wait(60)
        if step in {"timeout", "hung up"}:
            raise ConnectionAbortedError
        if step == "500":
            return 500, {}, b"{}"
        if step == "compressed":
            return 200, {"Content-Encoding": "gzip"}, b"x"
        return 200, {}, b"{" if step == "unreadable" else b'{"object": "no document"}'

    def _leave_room(self, calls: int) -> None:
        self.monkeypatch.setattr(limits, "RATE_SECONDS", 3600)
        self.settings.PAYMENTS = limited(WAIT_SECONDS=0)
        self.settings.PAYMENTS = limited(CALLS_PER_SECOND=max(calls, 1))
        if not calls:
            with limits.outbound(self.provider.channel):
                """Takes the only place."""


@pytest.fixture
def script(
    channels: None, company: Company, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Script]]:
    made: list[Script] = []
    # a time-out is of one wait alone: only what waits for the address takes time
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: 0.0))

    def of(channel: str) -> Script:
        made.append(Script(company, calling.provider(channel), settings, monkeypatch))
        return made[-1]

    yield of
    for one in made:
        one.over.set()


@dataclass(frozen=True, kw_only=True)
class Case:
    channel: str
    command: str
    place: str
    name: str
    failure: Any  # see `Script.play`; or what it answers
    expected: type[ProviderError]  # what is known then of the command
    before: Callable[[Attempt], list[Any]] = lambda attempt: []  # what the calls before it come to

    def __str__(self) -> str:
        return f"{self.channel}-{self.command}-{self.place}-{self.name}".replace(" ", "_")


def failures(channel: str) -> list[tuple[str, Any, type[ProviderError]]]:
    """List failures by name, as a step, with what is known of a command that ends so."""
    return [
        *((name, name, ProviderUnavailable) for name in UNSENT),
        *((name, made, ProviderUnavailable) for name, made in TURNED_AWAY[channel].items()),
        *((name, name, OutcomeUnknown) for name in SILENT),
        *((name, made, ProviderRejected) for name, made in REFUSED[channel].items()),
    ]


def intent(attempt: Attempt, status: str) -> Says:
    amount = {"amount": attempt.amount_minor, "currency": "cny"}
    metadata = {"out_trade_no": attempt.out_trade_no}
    return stripe_says({"id": "pi_1", "status": status, **amount, "metadata": metadata})


def taken(attempt: Attempt) -> Says:
    """Alipay's answer to a refund whose money may move later, or has moved before."""
    numbers = {"out_trade_no": attempt.out_trade_no, "trade_no": number_of(attempt)}
    return alipay_says(
        "alipay.trade.refund", {"code": "10000", **numbers, "fund_change": "N", "refund_fee": "5.00"}
    )


def not_closed(attempt: Attempt) -> list[Any]:
    """Answers to a closing after which the provider is asked."""
    if attempt.channel == "wechat":
        return [signed({"code": "INVALID_REQUEST", "message": "no"}, status=400)]
    if attempt.channel == "alipay":
        return [alipay_says("error", {"code": "40004", "sub_code": "ACQ.TRADE_STATUS_ERROR"})]
    return [intent(attempt, "requires_action"), stripe_error("payment_intent_unexpected_state", 400)]


def cases() -> Iterator[Case]:
    for channel in CHANNELS:
        for name, failure, itself in failures(channel):
            failed = {"channel": channel, "name": name, "failure": failure}
            asked = {**failed, "expected": OutcomeUnknown}
            yield Case(command="create", place="first", expected=itself, **failed)
            yield Case(command="create", place="again", before=lambda attempt: ["hung up"], **asked)
            yield Case(command="refund", place="first", expected=itself, **failed)
            yield Case(command="refund", place="again", before=lambda attempt: ["hung up"], **asked)
            if channel == "alipay":
                yield Case(command="refund", place="asked", before=lambda attempt: [taken(attempt)], **asked)
            if channel == "stripe":
                found = lambda attempt: [intent(attempt, "requires_action")]  # noqa: E731
                yield Case(command="close", place="first", before=found, expected=itself, **failed)
            elif itself is not ProviderRejected:  # a refused closing is asked about, see the next line
                yield Case(command="close", place="first", expected=itself, **failed)
            yield Case(command="close", place="asked", before=not_closed, **asked)


def no_refund() -> Says:
    """Alipay's answer to a query that comes within ten seconds, or if nothing went back."""
    return alipay_says("alipay.trade.fastpay.refund.query", {"code": "10000", "msg": "Success"})


UNHEARD_OF = Case(
    channel="alipay",
    command="refund",
    place="asked",
    name="unheard of",
    failure=no_refund,
    expected=OutcomeUnknown,
    before=lambda attempt: [taken(attempt)],
)
CASES = [*cases(), UNHEARD_OF]


def steps_of(case: Case, attempt: Attempt) -> list[Any]:
    return [*case.before(attempt), case.failure if isinstance(case.failure, str) else case.failure()]


@pytest.mark.parametrize("case", [case for case in CASES if case.command == "refund"], ids=str)
def test_a_refund_in_doubt_stays_reserved_and_is_the_only_one(
    case: Case, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    payment = paid_by(prepared(open_attempt, case.channel))
    refund, acts = refund_asked(payment.pk, PART_MINOR), script(case.channel)
    acts.play(*steps_of(case, payment.attempts.get()))
    if case.place == "again":
        assert refunds.submit_refund(refund.id).status == "uncertain"
    if case.expected is ProviderUnavailable:
        with pytest.raises(ProviderUnavailable):
            refunds.submit_refund(refund.id)
    else:
        refunds.submit_refund(refund.id)
    refund.refresh_from_db()
    payment.refresh_from_db()
    if case.expected is ProviderRejected:
        assert (refund.status, payment.reserved_minor) == ("failed", 0)
        return
    assert payment.reserved_minor == PART_MINOR
    with transaction.atomic(), pytest.raises(RefundExceedsPaid):
        refunds.request_refund(payment_id=payment.id, amount_minor=1990, reason="")
    with transaction.atomic():
        withdrawn = refunds.withdraw_refund(refund.id, message="abandoned")
    if case.expected is ProviderUnavailable:  # it never left, so it can be taken back
        assert (refund.status, refund.submitted_at, withdrawn.status) == ("requested", None, "failed")
    else:
        assert (refund.status, withdrawn.status) == ("uncertain", "uncertain")
        assert acts.refund_numbers == {refund.out_refund_no}


@pytest.mark.parametrize("case", [case for case in CASES if case.command == "create"], ids=str)
def test_an_attempt_in_doubt_stays_open_and_is_asked_about(
    case: Case, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    attempt, acts = prepared(open_attempt, case.channel), script(case.channel)
    acts.play(*steps_of(case, attempt))
    if case.place == "again":
        assert submission.submit_attempt(attempt.id).status == "uncertain"
    if case.expected is OutcomeUnknown:
        assert submission.submit_attempt(attempt.id).status == "uncertain"
    else:
        with pytest.raises(case.expected):
            submission.submit_attempt(attempt.id)
    attempt.refresh_from_db()
    unknown = {ProviderUnavailable: "created", OutcomeUnknown: "uncertain", ProviderRejected: "failed"}
    assert attempt.status == unknown[case.expected]


@pytest.mark.parametrize("case", [case for case in CASES if case.command == "close"], ids=str)
def test_a_closing_in_doubt_leaves_the_attempt_open(
    case: Case, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    attempt, acts = prepared(open_attempt, case.channel, status="pending", reference="pi_1"), script(case.channel)
    acts.play(*steps_of(case, attempt))
    assert closing.close_payment(order_id=attempt.payment.order_id) is closing.CloseResult.UNCERTAIN
    attempt.refresh_from_db()
    assert attempt.status == "pending"


def unheard_of(attempt: Attempt) -> list[Says]:
    """Answers about a refund that the provider does not know, and a refusal to make it."""
    if attempt.channel == "wechat":
        unknown, document = signed({"code": "RESOURCE_NOT_EXISTS"}, status=404), signed({"code": "NO"}, status=403)
        return [unknown, document]
    if attempt.channel == "alipay":
        return [no_refund(), REFUSED["alipay"]["40004"]()]
    return [stripe_lists(), stripe_error("charge_disputed", 400)]


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_refused_repeat_ends_no_refund_that_may_have_left(
    channel: str, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    payment = paid_by(prepared(open_attempt, channel))
    refund, acts = refund_asked(payment.pk, PART_MINOR), script(channel)
    acts.play("hung up", *unheard_of(payment.attempts.get()))
    for _ in range(2):
        assert refunds.submit_refund(refund.id).status == "uncertain"
    payment.refresh_from_db()
    assert (acts.steps, payment.reserved_minor) == ([], PART_MINOR)
    assert Anomaly.objects.get().kind == "refund_failed"  # a person looks at the refusal


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("refused_first", [True, False])
def test_a_refusal_ends_no_attempt_that_another_request_may_have_opened(
    channel: str, refused_first: bool, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    attempt, acts = prepared(open_attempt, channel), script(channel)
    refused = next(iter(REFUSED[channel].values()))()

    def overtaken(body: bytes) -> Answer:
        acts.steps += [unknown_trade(channel), "hung up"]
        assert submission.submit_attempt(attempt.id).status == "uncertain"
        connections.close_all()  # this thread's
        return refused(body)

    acts.play(*([overtaken] if refused_first else ["hung up", unknown_trade(channel), refused]))
    for _ in range(1 if refused_first else 2):
        assert submission.submit_attempt(attempt.id).status == "uncertain"
    attempt.refresh_from_db()
    assert (acts.steps, attempt.status) == ([], "uncertain")


@pytest.mark.parametrize("channel", CHANNELS)
def test_of_two_first_requests_the_refusal_of_one_does_not_end_the_other(
    channel: str, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    attempt, acts = prepared(open_attempt, channel), script(channel)
    refused = next(iter(REFUSED[channel].values()))()
    both_left = threading.Barrier(2)
    acts.play(lambda body: together(both_left, refused(body)), lambda body: together(both_left, None))
    with transaction.atomic():
        Attempt.objects.select_for_update(no_key=True).get(pk=attempt.pk)
        both = [in_background(lambda: submission.submit_attempt(attempt.id).status) for _ in range(2)]
        until(lambda: waiting_for_locks() == 2)  # each has read that no request was made
    assert [one.result() for one in both] == ["uncertain", "uncertain"]
    attempt.refresh_from_db()
    assert attempt.status == "uncertain"


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_refused_renewal_is_asked_about_and_ends_nothing(
    channel: str, open_attempt: OpenAttempt, script: Callable[[str], Script]
) -> None:
    over = timezone.now() - timedelta(hours=1)
    attempt = prepared(open_attempt, channel, status="pending", reference="pi_1", next_action_expires_at=over)
    acts, refused = script(channel), next(iter(REFUSED[channel].values()))
    acts.play(refused(), refused())
    with pytest.raises(OutcomeUnknown):
        submission.submit_attempt(attempt.id)
    attempt.refresh_from_db()
    assert (acts.steps, attempt.status) == ([], "pending")


@pytest.mark.parametrize("question", ["40005", "20001", "40002", "no room"])
def test_alipay_pays_a_refund_once_whatever_its_query_comes_to(
    question: str, open_attempt: OpenAttempt, script: Callable[[str], Script], shopper: User
) -> None:
    """Seen: a refund was paid out twice after `fund_change=N` and a failed query."""
    attempt = prepared(open_attempt, "alipay")
    payment, acts, caller = paid_by(attempt), script("alipay"), APIClient()
    caller.force_authenticate(shopper)
    failing = {**TURNED_AWAY["alipay"], **REFUSED["alipay"]}
    acts.play(taken(attempt), failing[question]() if question in failing else question)

    def ask(key: str) -> Any:
        given = {"amount_minor": 1990, "reason": "too small"}
        address = f"/api/v1/payments/{payment.id.hex}/refunds"
        return caller.post(address, given, format="json", headers={"Idempotency-Key": key})

    first = ask("k1")
    assert (first.status_code, first.json()["status"]) == (202, "uncertain")
    entry = LedgerEntry.objects.get()
    with pytest.raises(CommandError, match="may have made it"):
        call_command("idempotency", "abandon", str(entry.pk), "--note", "withdrawn", "--operator", "eve")
    assert ask("k2").json()["code"] == "refund_exceeds_paid"
    settings = acts.settings
    settings.PAYMENTS = limited(CALLS_PER_SECOND=1000, WAIT_SECONDS=30)
    acts.play(*unheard_of(attempt))
    again = ask("k1")
    assert (again.status_code, again.json()["status"]) == (202, "uncertain")
    assert ask("k3").json()["code"] == "refund_exceeds_paid"
    assert acts.refund_numbers == {Refund.objects.get().out_refund_no}


def unknown_trade(channel: str) -> Says:
    if channel == "wechat":
        return signed({"code": "ORDER_NOT_EXIST"}, status=404)
    if channel == "alipay":
        return alipay_says("error", {"code": "40004", "sub_code": "ACQ.TRADE_NOT_EXIST"})
    return stripe_lists()


def together(barrier: threading.Barrier, answer: Answer | None) -> Answer:
    barrier.wait(60)
    if answer is None:
        raise ConnectionAbortedError
    return answer


def prepared(open_attempt: OpenAttempt, channel: str, *, status: str = "created", **changed: Any) -> Attempt:
    """An attempt that the provider has not heard of, unless `status` says so."""
    attempt = open_attempt(channel, status=status, method=PayMethod.PRECREATE if channel == "alipay" else None)
    Attempt.objects.filter(pk=attempt.pk).update(**{"submitted_at": None, **changed})
    return Attempt.objects.get(pk=attempt.pk)


def paid_by(attempt: Attempt) -> Payment:
    fold(paid(attempt), source="query")
    return payment_of(attempt)
