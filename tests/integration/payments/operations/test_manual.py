"""Outcomes that an operator records for a provider without an answer: each counts once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from idempotency.ids import new_id
from payments.channels import configured
from payments.models import Anomaly, Attempt, Observation, Payment, Refund
from payments.operations import manual
from payments.operations.actions import NotDecidable, Operator
from payments.providers.base import Fact, RefundResult, RefundStatus
from payments.refunds import steps as refunds
from payments.settlement import backoff
from shop.models import Order, Product
from tests.integration.payments.admin.test_payment_admin import audit, done, page, shown
from tests.integration.payments.conftest import (
    OpenAttempt,
    books,
    fold,
    letter,
    number_of,
    opened,
    order_of,
    paid,
    payment_of,
    refund_asked,
    refunded,
)
from tests.integration.shop.provider import ScriptedProvider
from tests.payments_settings import ON_FIRE, changed
from tests.threads import at_once

Cut = Callable[..., None]
ByWord = Callable[[Attempt | Refund, bool], None]

OLD = backoff.IN_DOUBT + timedelta(seconds=1)
GONE = ["off", "of_another_merchant", "without_an_answer"]
WHY = {
    "off": "the account is not configured here",
    "of_another_merchant": "the account is configured for another merchant",
    "without_an_answer": "it has given no answer that can be trusted for more than 10 minutes",
}


@pytest.fixture
def cut(settings: Any) -> Cut:
    """Nobody can be asked about the row any more, for a reason of `GONE`."""
    before = settings.PAYMENTS["PROVIDERS"]

    def cut_off(row: Attempt | Refund, why: str = "off") -> None:
        rows = type(row)._default_manager.filter(pk=row.pk)
        if why == "without_an_answer":
            rows.update(status="uncertain", submitted_at=timezone.now() - OLD)
        else:
            rows.filter(status="created", submitted_at__isnull=False).update(status="pending")
        if why == "off":
            settings.PAYMENTS = changed(PROVIDERS={})
        elif why == "of_another_merchant":
            settings.PAYMENTS = changed(
                PROVIDERS={**before, "wechat": {**before["wechat"], "MCH_ID": "1900009999"}}
            )
        configured.forget()
        row.refresh_from_db()

    return cut_off


@pytest.fixture
def on_again(settings: Any) -> Callable[[], None]:
    before = settings.PAYMENTS["PROVIDERS"]

    def switch_on() -> None:
        settings.PAYMENTS = changed(PROVIDERS=before)
        configured.forget()

    return switch_on


@pytest.fixture
def by(admin_user: User) -> Operator:
    return Operator(user_id=admin_user.pk, reason="seen in the portal")


@pytest.fixture
def attempt(open_attempt: OpenAttempt) -> Attempt:
    return open_attempt(status="created")


@pytest.fixture
def over(attempt: Attempt) -> Attempt:
    """The same, and neither it nor its order can be paid any more."""
    let_end(attempt)
    return attempt


@pytest.fixture
def refund(attempt: Attempt) -> Refund:
    letter(attempt).send()
    return sent(attempt)


def sent(attempt: Attempt, amount_minor: int = 500) -> Refund:
    made = refund_asked(attempt.payment_id, amount_minor)
    Refund.objects.filter(pk=made.pk).update(status="processing", submitted_at=timezone.now() - OLD)
    made.refresh_from_db()
    return made


def let_end(attempt: Attempt) -> None:
    past = timezone.now() - timedelta(minutes=1)
    Attempt.objects.filter(pk=attempt.pk).update(expires_at=past)
    Order.objects.filter(pk=payment_of(attempt).order_id).update(expires_at=past)
    attempt.refresh_from_db()


def refund_number(refund: Refund) -> str:
    return f"5030{refund.out_refund_no}"


def back(refund: Refund, **changed: Any) -> Fact:
    return replace(refunded(refund.attempt, refund.amount_minor, refund.out_refund_no), **changed)


def form(row: Attempt | Refund, moved: bool, /, **changed: Any) -> dict[str, Any]:
    ours = number_of(row) if isinstance(row, Attempt) else refund_number(row)
    return {"moved": "yes" if moved else "no", "number": ours * moved, "reason": "seen in the portal", **changed}


def address(row: Attempt | Refund) -> str:
    return page(Payment(pk=row.payment_id), f"tell/{row.pk}")


def recorded(client: Client, row: Attempt | Refund, moved: bool, **changed: Any) -> str:
    """Record an outcome by hand; return the message."""
    (sentence,) = done(client, address(row), **form(row, moved, **changed))
    row.refresh_from_db()
    return sentence


def totals(row: Attempt | Refund) -> tuple[str, int, int, int]:
    payment = Payment.objects.get(pk=row.payment_id)
    return payment.status, payment.paid_minor, payment.refunded_minor, payment.reserved_minor


def stock() -> int:
    return Product.objects.get(sku="mug").stock


class TestAttempts:
    @pytest.mark.parametrize("why", GONE)
    def test_it_was_paid(self, admin_client: Client, attempt: Attempt, cut: Cut, why: str) -> None:
        cut(attempt, why)
        asked, name = shown(admin_client, address(attempt)), f"WeChat Pay attempt {attempt.out_trade_no}"
        for words in (name, "19.90 CNY", f"WeChat Pay cannot answer for it: {WHY[why]}", attempt.merchant):
            assert words in asked
        sentence = recorded(admin_client, attempt, True)
        assert sentence == f"{name}: it was paid, and that counts for the order."
        assert (attempt.status, order_of(attempt).status) == ("succeeded", "paid")
        assert totals(attempt) == ("succeeded", 1990, 0, 0)
        assert books() == {"provider": 1990, "orders": -1990}
        fact = Observation.objects.values_list("source", "merchant", "provider_txn_id", "credited").get()
        assert fact == ("operator", attempt.merchant, attempt.out_trade_no, True)
        what = f"Recorded that {name} was paid with 19.90 CNY as {number_of(attempt)}"
        assert audit() == [("admin", f"{what}. Reason: seen in the portal. Result: {sentence}")]
        assert what in shown(admin_client, page(attempt.payment))

    def test_it_was_never_paid_and_cannot_be_any_more(
        self, admin_client: Client, attempt: Attempt, cut: Cut
    ) -> None:
        cut(attempt)
        name = f"WeChat Pay attempt {attempt.out_trade_no}"
        assert "until then it cannot be recorded as never paid." in shown(admin_client, address(attempt))
        assert recorded(admin_client, attempt, False).startswith(f"{name} can be paid until ")
        assert (attempt.status, stock(), audit()) == ("pending", 99, [])
        let_end(attempt)
        sentence = recorded(admin_client, attempt, False)
        assert sentence == f"{name}: it ended unpaid."
        assert (attempt.status, order_of(attempt).status, stock()) == ("closed", "closed", 100)
        assert totals(attempt) == ("closed", 0, 0, 0)
        assert Observation.objects.values_list("kind", "source").get() == ("closed", "operator")
        what = f"Recorded that {name} was never paid and cannot be any more"
        assert audit() == [("admin", f"{what}. Reason: seen in the portal. Result: {sentence}")]

    def test_what_the_order_does_not_take_goes_back(
        self,
        admin_client: Client,
        attempt: Attempt,
        open_attempt: OpenAttempt,
        cut: Cut,
        on_again: Callable[[], None],
    ) -> None:
        other = open_attempt("alipay", order_of(attempt))
        letter(attempt).send()
        cut(other)
        sentence = recorded(admin_client, other, True)
        assert sentence.endswith(
            "it was paid, and the order does not take that: it is stored as an anomaly and goes back to the payer."
        )
        on_again()
        assert letter(other).send().content == b"success", "reported once more, it goes back once"
        assert Anomaly.objects.get().kind == "paid_twice"
        assert (Refund.objects.get().attempt, books()["held"]) == (other, -1990)

    @pytest.mark.parametrize(
        ("of", "first", "last"), [("attempt", "created", "closed"), ("refund", "requested", "failed")]
    )
    def test_what_its_provider_never_heard_of_can_end(
        self, request: Any, admin_client: Client, cut: Cut, of: str, first: str, last: str
    ) -> None:
        row = request.getfixturevalue(of)
        type(row).objects.update(status=first, submitted_at=None)
        cut(row)
        recorded(admin_client, row, False)
        assert (row.status, totals(row)[3]) == (last, 0)


class TestRefunds:
    def test_it_went_back(self, admin_client: Client, refund: Refund, cut: Cut) -> None:
        Refund.objects.update(submitted_at=timezone.now())  # that it moved is believed while it may still move
        cut(refund, "without_an_answer")
        asked, number = shown(admin_client, address(refund)), refund.out_refund_no
        for words in (number, "5.00 CNY", WHY["without_an_answer"], refund.attempt.merchant):
            assert words in asked
        assert totals(refund) == ("succeeded", 1990, 0, 500)
        sentence = recorded(admin_client, refund, True)
        assert (sentence, refund.status) == (f"Refund {number}: the money went back.", "succeeded")
        assert totals(refund) == ("partially_refunded", 1990, 500, 0)
        assert books() == {"provider": 1490, "orders": -1490}
        fact = Observation.objects.values_list("source", "out_refund_no", "paid_txn_id", "credited")
        assert fact.get(kind="refunded") == ("operator", number, number_of(refund.attempt), True)
        what = f"Recorded that refund {number} of 5.00 CNY went back as {refund_number(refund)}"
        assert audit() == [("admin", f"{what}. Reason: seen in the portal. Result: {sentence}")]

    def test_it_did_not_move(self, admin_client: Client, refund: Refund, cut: Cut) -> None:
        Refund.objects.update(submitted_at=timezone.now())
        cut(refund)
        number = refund.out_refund_no
        assert recorded(admin_client, refund, False).startswith(
            f"What was asked of WeChat Pay about refund {number} of 5.00 CNY may still be carried out"
        )
        assert (refund.status, totals(refund)[3], audit()) == ("processing", 500, [])
        Refund.objects.update(submitted_at=timezone.now() - OLD)
        sentence = recorded(admin_client, refund, False)
        assert sentence == f"Refund {number}: nothing moved; it has failed, and an anomaly is filed."
        assert (refund.status, totals(refund)) == ("failed", ("succeeded", 1990, 0, 0))
        assert Anomaly.objects.values_list("kind", "reference").get() == ("refund_failed", number)
        what = f"Recorded that refund {number} of 5.00 CNY did not move"
        assert audit() == [("admin", f"{what}. Reason: seen in the portal. Result: {sentence}")]
        assert sent(refund.attempt, 1990).amount_minor == 1990  # its reservation is gone

    def test_the_number_of_another_refund_is_refused(self, admin_client: Client, refund: Refund, cut: Cut) -> None:
        fold(back(refund), source="query")
        duplicate = sent(refund.attempt)
        cut(duplicate)
        for number in (refund_number(refund), number_of(refund.attempt)):
            assert recorded(admin_client, duplicate, True, number=number) == (
                f"Nothing changed: {number} is known already, of another payment or refund."
            )
        assert (duplicate.status, totals(duplicate)) == ("processing", ("partially_refunded", 1990, 500, 500))
        assert audit() == []

    @pytest.mark.parametrize(("moved", "held"), [(True, 0), (False, -5)])
    def test_of_what_our_policy_gives_back(
        self, admin_client: Client, attempt: Attempt, cut: Cut, moved: bool, held: int
    ) -> None:
        letter(attempt, charged_minor=5).send()
        ours = Refund.objects.get()
        cut(ours)
        recorded(admin_client, ours, moved)
        assert (ours.status, books().get("held", 0)) == ("succeeded" if moved else "failed", held)
        assert (Anomaly.objects.get(kind="amount_mismatch").resolved_at is not None) is moved
        assert Anomaly.objects.filter(kind="refund_failed").exists() is not moved


class TestWhatIsToldLater:
    """By the provider, once it can answer again."""

    @pytest.fixture
    def by_word(self, by: Operator, cut: Cut, on_again: Callable[[], None]) -> ByWord:
        """Record a row's outcome while nobody can be asked; then switch its provider on again."""

        def decide(row: Attempt | Refund, moved: bool) -> None:
            cut(row)
            manual.record(row, moved=moved, number=form(row, moved)["number"], by=by)
            on_again()
            row.refresh_from_db()

        return decide

    @pytest.fixture
    def paid_by_word(self, attempt: Attempt, by_word: ByWord) -> Attempt:
        by_word(attempt, True)
        return attempt

    def end(self, row: Attempt | Refund) -> tuple[Any, ...]:
        filed = [*Anomaly.objects.order_by("pk").values_list("kind", flat=True)]
        return totals(row), books(), filed

    @pytest.mark.parametrize("confirmed", ["", "pi_2"])
    def test_the_provider_is_asked_to_give_it_back_by_no_number_of_ours(
        self, paid_by_word: Attempt, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, confirmed: str
    ) -> None:
        asked: list[str] = []

        def request(**about: Any) -> RefundResult:
            asked.append(about["reference"])
            return RefundResult(status=RefundStatus.PROCESSING)

        monkeypatch.setattr(provider, "refund", request)
        provider.merchant = paid_by_word.merchant
        Attempt.objects.update(reference="pi_1")
        if confirmed:
            fold(paid(paid_by_word, provider_txn_id=confirmed), source="notification")
        monkeypatch.setattr(configured, "charging_again", lambda: {paid_by_word.account})  # as of Stripe
        refunds.submit_refund(refund_asked(paid_by_word.payment_id, 1).pk)
        assert asked == [confirmed or "pi_1"]

    def test_a_refund_reported_before_the_payment_counts_by_whatever_number_that_has(
        self, attempt: Attempt, by_word: ByWord
    ) -> None:
        fold(replace(refunded(attempt, 500, "by-hand"), paid_txn_id="42001"), source="notification")
        assert totals(attempt) == ("pending", 0, 0, 0)
        by_word(attempt, True)
        left = {"provider": 1490, "orders": -1490}
        assert self.end(attempt)[:2] == (("partially_refunded", 1990, 500, 0), left)

    @pytest.mark.parametrize("is_open", [True, False])
    def test_paid_after_all_counts_or_goes_back_as_the_order_is(
        self, over: Attempt, by_word: ByWord, is_open: bool
    ) -> None:
        if is_open:
            Order.objects.update(expires_at=timezone.now() + timedelta(minutes=5))
        by_word(over, False)
        assert order_of(over).status == ("pending" if is_open else "closed")
        letter(over).send()
        if is_open:
            ended: Any = ("paid", ("succeeded", 1990, 0, 0), {"provider": 1990, "orders": -1990}, [])
        else:
            ended = ("closed", ("closed", 0, 0, 0), {"provider": 1990, "held": -1990}, ["paid_after_close"])
        assert (order_of(over).status, *self.end(over)) == ended
        assert (Refund.objects.count(), stock()) == ((0, 99) if is_open else (1, 100))

    @pytest.mark.parametrize("moved", [True, False])
    def test_a_refund_that_ended_the_other_way_after_all(
        self, refund: Refund, by_word: ByWord, moved: bool
    ) -> None:
        by_word(refund, moved)
        if moved:
            news = RefundResult(status=RefundStatus.FAILED, message="bounced", out_refund_no=refund.out_refund_no)
            with transaction.atomic():
                assert refunds.take_notice(news, channel="wechat")
        else:
            fold(refunded(refund.attempt, 500, refund.out_refund_no), source="notification")
        refund.refresh_from_db()
        assert (refund.status, totals(refund)) == ("succeeded", ("partially_refunded", 1990, 500, 0))
        anomaly = Anomaly.objects.get()
        assert (anomaly.kind, anomaly.resolved_at is None) == ("refund_failed", moved)


class TestWhoCanBeAskedIsAsked:
    @pytest.mark.parametrize(
        ("of", "name", "statuses"),
        [
            ("over", "WeChat Pay attempt", ["created", "uncertain", "pending"]),
            ("refund", "refund", ["requested", "processing", "uncertain"]),
        ],
    )
    def test_in_any_status(self, request: Any, by: Operator, of: str, name: str, statuses: list[str]) -> None:
        row, young = request.getfixturevalue(of), timezone.now() - backoff.IN_DOUBT + timedelta(minutes=1)
        before = (totals(row), Observation.objects.count(), audit())
        for status in statuses:
            type(row).objects.update(status=status, submitted_at=None if status == "requested" else young)
            row.refresh_from_db()
            for moved in (True, False):
                words = rf"^WeChat Pay can answer for {name} {row.pk.hex}.*: ask the provider\.$"
                with pytest.raises(NotDecidable, match=words):
                    manual.record(row, moved=moved, number="4200" * moved, by=by)
        assert (totals(row), Observation.objects.count(), audit()) == before

    def test_on_the_page(self, admin_client: Client, over: Attempt) -> None:
        assert "Record the outcome" not in shown(admin_client, page(over.payment))
        for answer in (
            admin_client.get(address(over), follow=True),
            admin_client.post(address(over), form(over, True), follow=True),
        ):
            (heard,) = [str(message) for message in answer.context["messages"]]
            assert heard.startswith(f"WeChat Pay can answer for WeChat Pay attempt {over.out_trade_no}")
        assert (Observation.objects.count(), audit()) == (0, [])

    def test_what_is_over_stays_so(self, admin_client: Client, attempt: Attempt, cut: Cut) -> None:
        Attempt.objects.update(status="failed")
        cut(attempt)
        over = f"Nothing changed: WeChat Pay attempt {attempt.out_trade_no} is over (failed)."
        assert recorded(admin_client, attempt, True).startswith(over)
        assert "Record the outcome" not in shown(admin_client, page(attempt.payment))
        assert (Observation.objects.count(), audit()) == (0, [])


class TestThePage:
    def test_it_has_a_permission_of_its_own(self, client: Client, attempt: Attempt, cut: Cut) -> None:
        cut(attempt)
        user = User.objects.create_user("clerk", is_staff=True)
        client.force_login(user)
        view = Permission.objects.get(codename="view_payment")
        button = f'<li><a href="{address(attempt)}">Record the outcome</a></li>'
        others = Permission.objects.filter(codename__in=["query_payment", "refund_payment"])
        user.user_permissions.set([view, *others])
        assert button not in shown(client, page(attempt.payment))
        assert client.get(address(attempt)).status_code == 403
        assert client.post(address(attempt), form(attempt, True)).status_code == 403
        user.user_permissions.set([Permission.objects.get(codename="tell_outcome")])
        assert client.get(address(attempt)).status_code == 403  # who may not see it may not act on it
        assert audit() == []
        user.user_permissions.set([view, Permission.objects.get(codename="tell_outcome")])
        assert button in shown(client, page(attempt.payment))
        recorded(client, attempt, True)
        assert [name for name, _ in audit()] == ["clerk"]

    def test_each_row_of_the_payment_has_its_button_and_page(
        self, admin_client: Client, attempt: Attempt, open_attempt: OpenAttempt, cut: Cut
    ) -> None:
        other, stranger = open_attempt("alipay", order_of(attempt)), open_attempt()
        cut(attempt)
        seen = shown(admin_client, page(attempt.payment))
        for row in (attempt, other):
            words = f"Record the outcome of {row.pk.hex[:8]}…{row.pk.hex[-6:]}"
            assert f'<li><a href="{address(row)}">{words}</a></li>' in seen
        for pk in (stranger.pk, new_id()):
            assert admin_client.get(page(attempt.payment, f"tell/{pk}")).status_code == 404

    def test_a_form_that_says_nothing(self, admin_client: Client, over: Attempt, cut: Cut) -> None:
        cut(over)
        for moved, more, words in (
            (True, {"reason": "  "}, "This field is required."),
            (True, {"moved": ""}, "This field is required."),
            (True, {"moved": "maybe"}, "Select a valid choice."),
            (True, {"number": " "}, "Money moved, so it has a number there."),
            (False, {"number": "4200"}, "Leave it empty: nothing moved."),
            (True, {"number": "４２００"}, "letters, digits"),
            (True, {"number": "4" * 65}, "at most 64 characters"),
        ):
            answer = admin_client.post(address(over), form(over, moved, **more))
            assert (answer.status_code, words in answer.text) == (200, True)
        assert (Observation.objects.count(), audit()) == (0, [])


class TestOnce:
    def at_once(self, user: User, *given: tuple[Attempt | Refund, dict[str, Any]]) -> list[str]:
        def click(row: Attempt | Refund, form: dict[str, Any]) -> str:
            client = Client()
            client.force_login(user)
            # not by the pages' contexts, which the client collects from all threads
            answer = client.post(address(row), form)
            (sentence,) = get_messages(answer.wsgi_request)
            return str(sentence)

        return at_once(*[lambda one=one: click(*one) for one in given])  # type: ignore[misc]

    def test_a_double_click(self, admin_user: User, attempt: Attempt, cut: Cut) -> None:
        cut(attempt)
        sentences = self.at_once(admin_user, *[(attempt, form(attempt, True))] * 4)
        assert sorted("counts for the order" in one for one in sentences) == [False, False, False, True]
        assert (Observation.objects.count(), len(audit()), totals(attempt)[1]) == (1, 1, 1990)

    @pytest.mark.parametrize("of", ["over", "refund"])
    def test_opposite_answers(self, request: Any, admin_user: User, cut: Cut, of: str) -> None:
        row = request.getfixturevalue(of)
        cut(row)
        first, second = self.at_once(admin_user, (row, form(row, True)), (row, form(row, False)))
        row.refresh_from_db()
        moved = row.status == "succeeded"
        winner, loser = (first, second) if moved else (second, first)
        assert loser.startswith("Nothing changed: ")
        [(_, said)] = audit()
        assert winner in said
        if of == "refund":
            assert totals(row)[2:] == ((500, 0) if moved else (0, 0))
        else:
            assert (order_of(row).status, stock()) == (("paid", 99) if moved else ("closed", 100))


class TestOneTransaction:
    BY = Operator(user_id=-1, reason="nobody of that number")

    @pytest.mark.parametrize("moved", [True, False])
    @pytest.mark.parametrize("of", ["over", "refund"])
    def test_without_its_audit_line_nothing_is_recorded(
        self, request: Any, cut: Cut, of: str, moved: bool
    ) -> None:
        row = request.getfixturevalue(of)
        cut(row)
        before = (row.status, totals(row), Observation.objects.count(), stock())
        with pytest.raises(User.DoesNotExist):
            manual.record(row, moved=moved, number="4200" if moved else "", by=self.BY)
        row.refresh_from_db()
        assert (row.status, totals(row), Observation.objects.count(), stock()) == before
        assert not Anomaly.objects.exists()

    def test_no_audit_line_without_its_effect(
        self, admin_user: User, attempt: Attempt, cut: Cut, settings: Any
    ) -> None:
        cut(attempt)
        settings.PAYMENTS = changed(ORDER=ON_FIRE)
        with pytest.raises(RuntimeError, match="on fire"):
            manual.record(attempt, moved=True, number="4200", by=Operator(user_id=admin_user.pk, reason="x"))
        assert (audit(), Observation.objects.count()) == ([], 0)


class TestBesideTheTimer:
    """The channel is on, and the timer takes the refund up at the very moment."""

    @pytest.fixture
    def attempt(self, new_order: Callable[[], Order], provider: ScriptedProvider) -> Attempt:
        return opened(new_order())

    @pytest.fixture
    def doubted(self, paid_payment: Payment) -> Refund:
        made = sent(paid_payment.attempts.get())
        Refund.objects.filter(pk=made.pk).update(status="uncertain")
        made.refresh_from_db()
        return made

    @pytest.mark.parametrize("was_recorded_first", [True, False])
    def test_what_an_operator_ends_is_not_requested_and_what_is_requested_they_cannot_end(
        self,
        by: Operator,
        provider: ScriptedProvider,
        doubted: Refund,
        monkeypatch: pytest.MonkeyPatch,
        was_recorded_first: bool,
    ) -> None:
        heard: list[str] = []

        def decide() -> None:
            try:
                manual.record(doubted, moved=False, number="", by=by)
            except NotDecidable as refused:
                heard.append(str(refused))

        def query_refund(**asked: Any) -> RefundResult:
            if was_recorded_first:
                decide()
            return RefundResult(status=RefundStatus.NOT_FOUND)

        def request(**asked: Any) -> RefundResult:
            provider.calls.append(("refund", asked["out_refund_no"]))
            if not was_recorded_first:
                decide()
            return RefundResult(status=RefundStatus.PROCESSING)

        monkeypatch.setattr(provider, "query_refund", query_refund)
        monkeypatch.setattr(provider, "refund", request)
        status = refunds.submit_refund(doubted.pk).status
        requests = [number for method, number in provider.calls if method == "refund"]
        assert (status, len(requests)) == (("failed", 0) if was_recorded_first else ("processing", 1))
        assert [one.endswith("ask the provider.") for one in heard] == ([] if was_recorded_first else [True])
        assert totals(doubted)[3] == (0 if was_recorded_first else 500)

    def test_between_look_and_end_nobody_submits_it(self, by: Operator, doubted: Refund) -> None:
        refused: list[str] = []
        other = connection.copy()

        def look(execute: Any, sql: str, *given: Any) -> Any:
            if '"submitted_at" >' in sql:
                for table in ("payments_payment", "payments_refund"):
                    with pytest.raises(DatabaseError, match="could not obtain lock"), other.cursor() as cursor:
                        cursor.execute(f"SELECT id FROM {table} FOR NO KEY UPDATE NOWAIT")
                    refused.append(table)
            return execute(sql, *given)

        try:
            with connection.execute_wrapper(look):
                manual.record(doubted, moved=False, by=by)
        finally:
            other.close()
        assert refused == ["payments_payment", "payments_refund"] * 2  # for the doubt, and for the end
