"""The login page, whose form may be sent twice: a double click, or an answer that was lost."""

from django.contrib.auth import SESSION_KEY, views
from django.contrib.auth.forms import AuthenticationForm
from django.http import HttpResponse


class LoginView(views.LoginView):
    """Django's, which leaves the guest's session in place and logs in to a copy of it.

    Django moves the session to a new key, so that a key which a guest had (or was given by an attacker) is never a
    member's; then a form sent again carries the key of a session that is gone, and ends in an empty one. Here the
    guest's row stays until it expires, with the basket and nothing of the member.
    """

    def get_redirect_url(self) -> str:  # type: ignore[override]  # the stubs are of a later Django
        """Return where the shopper was, unless that is this page: a member would go in a circle."""
        address = super().get_redirect_url()
        return "" if address == self.request.path else address

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        guests = self.request.session
        if SESSION_KEY not in guests:
            self.request.session = type(guests)()
            self.request.session.update(dict(guests.items()))
        return super().form_valid(form)
