"""Command ``manage.py idempotency`` and its subcommands."""

import argparse
import getpass
from typing import Any

from django.core.management.base import CommandError

from idempotency import ledger
from idempotency.admin import lock_display, log_display, searching
from idempotency.admin.labels import utc
from idempotency.admin.lock_kinds import KINDS
from idempotency.errors import explaining_missing_tables
from idempotency.ledger.claiming import EPOCH_SECONDS
from idempotency.maintenance.completer import IDLE_SECONDS, complete_stalled
from idempotency.maintenance.decisions import RESOLVE_STATUSES, Decision, NotDecidable, abandon, resolve
from idempotency.maintenance.reaper import BATCH, reap
from idempotency.management.base import LedgerCommand, active_user, positive, seconds
from idempotency.models import EventStatus, LedgerEntry
from idempotency.postgres import home
from idempotency.protocol.recovery import NotAbandonable
from idempotency.webhooks import NotReplayable, apply_stored_events, replay

SCHEDULED = ("reap", "complete", "apply")


class Command(LedgerCommand):
    """Command over the ledger; each subcommand is bounded and may run again, also at once."""

    help = "Look at the idempotency ledger, clear it, and decide about entries whose outcome is unknown."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        show = actions.add_parser("show", help="one entry with its history")
        lately = f"a request id or key_digest of the newest {searching.LOOKED_AT:,}"
        show.add_argument("wanted", help=f"a key, a subject such as order:0190…, {lately}, or #number")
        reaping = actions.add_parser("reap", help="remove bytes and keys that are past their time")
        reaping.add_argument("--batch", type=positive, default=BATCH, help="rows a transaction (%(default)s)")
        completing = actions.add_parser("complete", help="run stalled entries again from their recovery points")
        completing.add_argument("--limit", type=positive, default=1_000, help="entries (%(default)s)")
        completing.add_argument(
            "--idle-seconds", type=seconds, default=IDLE_SECONDS, help="leave younger ones to their client"
        )
        applying = actions.add_parser("apply", help="apply webhook events that are stored and due")
        applying.add_argument("--limit", type=positive, default=1_000, help="events (%(default)s)")
        resolving = actions.add_parser("resolve", help="it happened: answer its key with this from now on")
        resolving.add_argument("--status", type=int, choices=RESOLVE_STATUSES, default=200)
        resolving.add_argument("--body", default='{"resolved": true}', help="JSON")
        resolving.add_argument("--location", default="")
        abandoning = actions.add_parser("abandon", help="it did not happen: answer its key with 409 from now on")
        replaying = actions.add_parser("replay", help="apply a webhook event now, also one in quarantine")
        for decision in (resolving, abandoning, replaying):
            decision.add_argument("entry", help="#number, as `show` or the admin prints it")
            decision.add_argument("--note", required=True, help="why; recorded in the history")
            decision.add_argument("--operator", help="name of the operator (default: the login name)")
        actions.add_parser("forget-redis", help="after a restore: ignore all that Redis has now")
        locks = actions.add_parser("locks", help="who holds a lock, and who waits").add_subparsers(required=True)
        self._add_lock_arguments(locks.add_parser("show", help="the locks of a name"))

    def _add_lock_arguments(self, show: argparse.ArgumentParser) -> None:
        show.add_argument("name")
        show.add_argument("--release", action="store_true", help="take it from its holder by force")
        show.add_argument("--kind", choices=KINDS, help="of what is released, if there are several")
        show.add_argument("--token", type=int, help="of the hold that is released, if there are several")
        show.add_argument("--note", default="", help="why; recorded in the admin's log")
        show.add_argument("--operator", help="name of the active user who decides (default: the login name)")

    def handle(self, *args: Any, **options: Any) -> None:
        self._verbosity = options["verbosity"]
        if home.has_no_ledger():
            if options["action"] not in SCHEDULED:
                raise CommandError(home.NO_LEDGER)
            self._summarize(home.NO_LEDGER)
            return
        with explaining_missing_tables():
            getattr(self, f"_{options['action'].replace('-', '_')}")(options)

    def _show(self, options: dict[str, Any]) -> None:
        wanted = options["wanted"]
        every = LedgerEntry.objects.all()
        by_number = wanted.startswith("#")
        numbers = {_number(wanted)} if by_number else searching.entries(every, wanted, scopes=False)
        found = list(every.filter(pk__in=numbers).order_by("pk"))
        if not found:
            raise CommandError(
                f"There is no entry with the key or subject {wanted!r}, and none of the newest "
                f"{searching.LOOKED_AT:,} with that request id or digest."
            )
        for entry in found:
            answer = "" if entry.response_status is None else f", answered {entry.response_status}"
            self.stdout.write(f"#{entry.pk}  {entry.scope}  key {entry.key}")
            self.stdout.write(f"  {entry.mode}, {entry.state}, fence {entry.fence}{answer}  {entry.subject}")
            for event in log_display.timeline(entry):
                self.stdout.write(f"  {utc(event.at)} UTC  {event.what}  {event.who}  {event.note}".rstrip())

    def _reap(self, options: dict[str, Any]) -> None:
        removed = reap(batch=options["batch"], on_progress=self._progress)
        self._summarize(", ".join(f"{count} {what}" for what, count in removed.items()) + " removed")

    def _complete(self, options: dict[str, Any]) -> None:
        results = complete_stalled(
            limit=options["limit"],
            idle_seconds=options["idle_seconds"],
            on_progress=lambda done: self._progress("entries", done),
        )
        self._summarize(_counts(results) or "nothing is stalled")
        if failed := results.get("failed"):
            raise CommandError(f"{failed} could not be completed: the log says why. They are tried again later.")

    def _apply(self, options: dict[str, Any]) -> None:
        results = apply_stored_events(limit=options["limit"])
        self._summarize(_counts(results) or "nothing is due")
        if failed := results.get("failed", 0) + results.get("quarantined", 0):
            raise CommandError(f"{failed} could not be applied: the log and the admin say why.")

    def _replay(self, options: dict[str, Any]) -> None:
        number = _number(options["entry"])
        try:
            result = replay(number, operator=_operator(options), note=options["note"])
        except (NotReplayable, ValueError) as error:
            raise CommandError(str(error)) from error
        if result != EventStatus.APPLIED:
            raise CommandError(f"Event #{number} is {result}: the log and the admin say why.")
        self.stdout.write(f"#{number} is applied")

    def _resolve(self, options: dict[str, Any]) -> None:
        answer = {name: options[name] for name in ("status", "body", "location")}
        self._decide(options, lambda decision: resolve(decision, **answer))

    def _abandon(self, options: dict[str, Any]) -> None:
        self._decide(options, abandon)

    def _forget_redis(self, options: dict[str, Any]) -> None:
        ledger.renew_epoch()
        self.stdout.write(
            f"Processes that run may believe what Redis had for another {EPOCH_SECONDS:g} s, and not longer; "
            "those that start from now on do not."
        )

    def _locks(self, options: dict[str, Any]) -> None:
        try:
            found = lock_display.shown(options["name"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        if options["release"]:
            self._release(found, options)
            return
        for lock in found:
            self.stdout.write("\n".join(lock_display.lines(lock)))
        if not found:
            self.stdout.write("Nobody holds a lock of this name, and nobody waits for one.")
        if any(lock.error for lock in found):
            raise CommandError("Not every kind could be asked; see above.")

    def _release(self, found: list[lock_display.ShownLock], options: dict[str, Any]) -> None:
        note = options["note"].strip()
        holds = [
            (lock.kind, hold)
            for lock in found
            if options["kind"] in {None, lock.kind}
            for hold in lock.holds
            if lock_display.is_hold(hold, "", options["token"])
        ]
        if len(holds) != 1:
            raise CommandError(f"{len(holds)} holds are meant: --kind and --token must name one hold.")
        if not note:
            raise CommandError("--note says nothing: the admin's log stores the reason.")
        user = active_user(options["operator"] or _login_name())
        replied, sentence = lock_display.release_by_force(
            holds[0][0], options["name"], holds[0][1], user=user, note=note
        )
        if not replied:
            raise CommandError(sentence)
        self.stdout.write(sentence)

    def _decide(self, options: dict[str, Any], decide: Any) -> None:
        entry = LedgerEntry.objects.filter(pk=_number(options["entry"])).first()
        if entry is None:
            raise CommandError(f"There is no entry {options['entry']}.")
        by, note = _operator(options), options["note"]
        try:
            decide(Decision(entry_id=entry.pk, fence=entry.fence, operator=by, note=note))
        except NotDecidable:
            raise CommandError(
                f"Entry #{entry.pk} is {entry.state}: it is finished, or its handler is still running."
            ) from None
        except (NotAbandonable, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"#{entry.pk} is closed")

    def _summarize(self, text: str) -> None:
        """Print what a run of a timer did, but for cron, which mails all that ``-v 0`` prints."""
        self._progress()
        if self._verbosity > 0:
            self.stdout.write(text)

    def _progress(self, *counted: object) -> None:
        """Show on a terminal what is counted by now, in place of what was shown before."""
        if self.stderr.isatty():
            self.stderr.write(f"\r\x1b[K{': '.join(map(str, counted))}", style_func=str, ending="")


def _counts(results: dict[str, int]) -> str:
    return ", ".join(f"{count} {result}" for result, count in sorted(results.items()))


def _operator(options: dict[str, Any]) -> str:
    return f"operator {options['operator'] or _login_name()}"


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # as in a container, whose user id has no name
        raise CommandError("No login name here: give the operator's name with --operator.") from None


def _number(text: str) -> int:
    try:
        return int(text.lstrip("#"))
    except ValueError:
        raise CommandError(f"{text!r} is no entry's number; `show` prints it.") from None
