"""Background work on the durable queue: timers, events of payments, policy refunds.

Of a timer, `timestamp` is the run that the queue scheduled, in Unix seconds. Ids are 32 hexadecimal characters.
"""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from procrastinate import JobContext, RetryStrategy
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued
from procrastinate.jobs import Job

from payments.attempts import certificates, closing
from payments.deliveries import sending
from payments.errors import ProviderError
from payments.reconciliation import bills, reconcile
from payments.refunds import steps as refunds
from payments.settlement import events
from payments.webhooks import intake


@app.periodic(cron="* * * * * */10")
# no `lock` of the queue's: a killed worker would hold it, and the questions would end
@app.task(name="payments.reconciliation.reconcile", queueing_lock="payments.reconciliation.reconcile")
def reconcile_due(timestamp: int) -> int:
    """Ask about what is due, every ten seconds, by `reconcile.run_as_leader`."""
    return reconcile.run_as_leader()


@app.task(
    name="payments.submit_refund",
    retry=RetryStrategy(max_attempts=5, exponential_wait=2, retry_exceptions=[ProviderError]),
)
def submit_refund(refund_id: str) -> None:
    """Submit a policy refund; the timer goes on where the retries end."""
    refunds.submit_refund(UUID(hex=refund_id))


@app.task(
    name="payments.look_again",
    retry=RetryStrategy(max_attempts=12, exponential_wait=2),  # for hours, also where the database was away
)
def look_again(attempt_id: str) -> None:
    """Ask again about an attempt that was closed while its link was good."""
    closing.look_again(UUID(hex=attempt_id))


@app.task(
    name="payments.replay_early",
    retry=RetryStrategy(max_attempts=17, exponential_wait=2),  # in all 2 ** 18 seconds, as long as `intake.EARLY`
)
def replay_early(notification_pk: int) -> None:
    """Process a dispute again that came before its payment; see `intake.replay_early`."""
    intake.replay_early(notification_pk)


@app.periodic(cron="*/5 * * * *")
@app.task(name="payments.take_up_stalled", queueing_lock="payments.take_up_stalled", pass_context=True)
async def take_up_stalled(context: JobContext, timestamp: int) -> int:
    """Retry jobs of a killed worker that no timer finds, or that keep their payment waiting."""
    return await retry_stalled(context, look_again, replay_early, submit_refund)


async def retry_stalled(context: JobContext, *tasks: Any) -> int:
    """Retry the jobs of these tasks whose worker was killed; return how many."""
    queue, jobs = context.app.job_manager, list[Job]()
    for task in tasks:
        jobs += await queue.get_stalled_jobs(task_name=task.name)
    for job in jobs:
        await queue.retry_job(job)
    return len(jobs)


@app.periodic(cron="* * * * * *")
@app.task(name="payments.handle_events", queueing_lock="payments.handle_events")
def handle_events(timestamp: int) -> int:
    """Queue a job for each endpoint with due deliveries, and handle events, every second."""
    for name in sending.due_endpoints():
        with suppress(AlreadyEnqueued):
            send_deliveries.configure(queueing_lock=f"payments.send_deliveries {name}").defer(endpoint=name)
    return events.handle_waiting()


@app.periodic(cron="* * * * * */30")
@app.task(name="payments.retry_events", queueing_lock="payments.retry_events")
def retry_events(timestamp: int) -> int:
    """Handle waiting events of which one has failed, too, twice a minute."""
    return events.handle_waiting(again=True)


# behind all other work: an endpoint may be slow
@app.task(name="payments.send_deliveries", priority=-10)
def send_deliveries(endpoint: str) -> dict[str, int]:
    """Send what is due to an endpoint; see `sending.send_due`."""
    return sending.send_due(endpoint)


@app.periodic(cron=f"{bills.MINUTE} {','.join(map(str, bills.HOURS))} * * *")
@app.task(name="payments.compare_bills", queueing_lock="payments.compare_bills")
def compare_bills(timestamp: int) -> int:
    """Compare bills thrice a day; see `bills.compare_recent`."""
    return bills.compare_recent(now=datetime.fromtimestamp(timestamp, UTC))


@app.periodic(cron="41 */6 * * *")
@app.task(name="payments.refresh_certificates", queueing_lock="payments.refresh_certificates")
def refresh_certificates(timestamp: int) -> int:
    """Store new certificates ahead of need, four times a day; return their number."""
    return certificates.refresh()
