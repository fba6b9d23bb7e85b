"""What a reader of a page in Chinese meets in Latin letters."""

import re
from collections.abc import Iterable
from html.parser import HTMLParser

# names of products, formats and codes, which Chinese writes alike
ALIKE = (
    *("UTC", "JSON", "CSV", "URL", "ID", "API", "SKU", "HMAC-SHA-256", "ISO", "4xx", "Redis", "PostgreSQL"),
    *("Prometheus", "Webhook", "Phases", "Location", "Idempotency-Key", "PayOnce", "Django", "Stripe", "English"),
    *("IDEMPOTENCY", "REDIS", "None", "SECRET_KEY", "@webhook"),
)
# sentences of Django 6.1 that its Chinese does not have yet
DJANGOS = ("- Select an option -", "Filter by")
# not `alt`: that of Django's icon of a search is English
SHOWN_ATTRIBUTES = {"title", "aria-label", "placeholder", "data-label", "data-side"}
LATIN = re.compile(r"[A-Za-z][A-Za-z'’-]+")


class _Visible(HTMLParser):
    """Texts of a page that a person may see or hear; no script, no data, no side bar."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._hidden: list[str] = []
        self._goes_on = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":  # the next text is the same word
            self._goes_on = True
            return
        named = dict(attrs)
        shown = {name: value for name, value in named.items() if name in SHOWN_ATTRIBUTES}
        if tag == "input" and named.get("type") == "submit":
            shown["value"] = named.get("value")
        if not self._hidden:
            self.texts += [value for value in shown.values() if value]
        if tag in {"script", "style", "pre", "code", "textarea"} or named.get("id") == "nav-sidebar":
            self._hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and self._hidden[-1] == tag:
            self._hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.texts.append(self.texts.pop() + data if self._goes_on else data)
        self._goes_on = False


def latin_in(page: str, data: Iterable[str] = ()) -> list[str]:
    """List the texts of a page that have a word in Latin letters.

    Args:
        data: what the rows hold, and so is shown as it is.
    """
    visible = _Visible()
    visible.feed(page)
    known = re.compile("|".join(map(re.escape, sorted({*data, *ALIKE, *DJANGOS}, key=len, reverse=True))))
    return [text.strip() for text in visible.texts if LATIN.search(known.sub(" ", text))]
