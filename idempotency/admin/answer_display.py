"""Display of a stored answer or request: its headers, its body, or the reason for none."""

import json
from collections.abc import Mapping

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from idempotency.admin.labels import utc
from idempotency.models import LedgerEntry, State
from idempotency.request.keys import digest_of
from idempotency.response import encryption
from idempotency.response.answers import StoredResponse

SHOWN_MAX = 20_000  # characters


def headers(entry: LedgerEntry) -> SafeString | str:
    """Write a line for each header."""
    return lines(entry.response_headers)


def lines(headers: Mapping[str, str]) -> SafeString | str:
    """Write a line for each header."""
    return format_html_join(mark_safe("<br>"), "{}: {}", headers.items()) or "none"


def body(entry: LedgerEntry) -> SafeString | str:
    """Show what a retry is answered with: indented JSON, and a remark where something is cut off."""
    if entry.state != State.FINISHED:
        return "none yet"
    if entry.response_body is None:
        why = f"removed {utc(entry.purged_at)} UTC" if entry.purged_at else "it was too large"
        return f"not stored ({why}): a retry is answered 410, and nothing is executed"
    answer = StoredResponse(status=200, headers={}, body=bytes(entry.response_body), body_key_id=entry.body_key_id)
    try:
        plain = encryption.unseal(answer, digest=digest_of(scope=entry.scope, key=entry.key)).body or b""
    except encryption.EncryptionError as error:
        return f"cannot be shown: {error}"
    return content(
        plain, f"Encrypted in the database, under the key {entry.body_key_id}." if entry.body_key_id else ""
    )


def content(plain: bytes, remark: str = "") -> SafeString:
    """Show a body, indented if it is JSON, with a remark where something is cut off."""
    remarks = [remark] if remark else []
    try:
        text = _indented(plain.decode())
    except UnicodeDecodeError:
        text = ""
        remarks.append(f"{len(plain):,} bytes that are not text.")
    if not plain:
        remarks.append("Empty.")
    if len(text) > SHOWN_MAX:
        remarks.append(f"The first {SHOWN_MAX:,} of {len(text):,} characters.")
    shown = format_html('<pre class="ledger-body" tabindex="0">{}</pre>', text[:SHOWN_MAX]) if text else ""
    return format_html("{}{}", shown, " ".join(remarks))


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
