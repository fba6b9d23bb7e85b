"""Display of a stored answer or request: its headers, its body, or the reason for none."""

import html
import json
from collections.abc import Mapping
from contextlib import suppress

from django.utils.html import format_html, format_html_join, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from idempotency.admin.labels import utc
from idempotency.models import LedgerEntry, State
from idempotency.request.keys import digest_of
from idempotency.response import encryption
from idempotency.response.answers import StoredResponse

SHOWN_MAX = 20_000  # characters
HEADING_MAX = 1_000  # characters, tags too


def lines(headers: Mapping[str, str]) -> SafeString | str:
    return format_html_join(mark_safe("<br>"), "{}: {}", headers.items()) or _("none")


def body(entry: LedgerEntry) -> SafeString | str:
    """Show a retry's answer: indented JSON, and a remark where something is cut off."""
    if entry.state != State.FINISHED:
        return _("none yet")
    if entry.response_body is None:
        if not entry.purged_at:
            return _("not stored (it was too large): a retry is answered 410, and nothing is executed")
        removed = _("not stored (removed %(at)s UTC): a retry is answered 410, and nothing is executed")
        return removed % {"at": utc(entry.purged_at)}
    try:
        plain = _plain(entry)
    except encryption.EncryptionError as error:
        return _("cannot be shown: %(error)s") % {"error": error}
    sealed = _("Encrypted in the database, under the key %(key)s.") % {"key": entry.body_key_id}
    return content(plain, sealed if entry.body_key_id else "")


def heading(entry: LedgerEntry) -> str:
    """Return the words of a refusal: a problem document's detail, or the heading of a page."""
    try:
        text = _plain(entry).decode(errors="replace")
    except encryption.EncryptionError:
        return ""
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        return _writable(str(json.loads(text)["detail"]))
    words, end, _rest = text.partition("<h1")[2].partition("</h1>")
    return html.unescape(strip_tags(f"<h1{words}"[:HEADING_MAX])).strip() if end else ""


def _plain(entry: LedgerEntry) -> bytes:
    stored = bytes(entry.response_body or b"")
    answer = StoredResponse(status=200, headers={}, body=stored, body_key_id=entry.body_key_id)
    return encryption.unseal(answer, digest=digest_of(scope=entry.scope, key=entry.key)).body or b""


def content(plain: bytes, remark: str = "") -> SafeString:
    """Show a body, indented if it is JSON, with a remark where something is cut off."""
    remarks = [remark] if remark else []
    try:
        text = _indented(plain.decode())
    except UnicodeDecodeError:
        text = ""
        remarks.append(_("%(count)s bytes that are not text.") % {"count": f"{len(plain):,}"})
    if not plain:
        remarks.append(_("Empty."))
    if len(text) > SHOWN_MAX:
        counts = {"shown": f"{SHOWN_MAX:,}", "all": f"{len(text):,}"}
        remarks.append(_("The first %(shown)s of %(all)s characters.") % counts)
    shown = format_html('<pre class="ledger-body" tabindex="0">{}</pre>', text[:SHOWN_MAX]) if text else ""
    return format_html("{}{}", shown, " ".join(remarks))


def _indented(text: str) -> str:
    try:
        return _writable(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return text


def _writable(text: str) -> str:
    """Spell half a pair of surrogates as JSON does: it has no bytes."""
    return text.encode(errors="backslashreplace").decode()
