"""Every address of the project, but for the probes (`shop.platform.middleware`)."""

from csp import constants as csp
from csp.decorators import csp_update
from django.conf import settings
from django.contrib import admin
from django.contrib.auth import views as auth_views
from django.urls import include, path
from django.views.decorators.http import conditional_page
from django.views.generic import RedirectView

import payments.urls
import shop.api.urls
import shop.devserver.demo
import shop.web.pages
from idempotency.drf import TokenList
from shop.api.docs import DocsView, SchemaView, problems
from shop.platform.fallbacks import no_such_call, no_such_page
from shop.web.decorators import posted_only
from shop.web.live import OrderEvents
from shop.web.login import LoginView
from shop.web.rates import limits_guesses

handler400 = "shop.platform.fallbacks.bad_request"
handler403 = "shop.platform.fallbacks.refused"
handler404 = "shop.platform.fallbacks.not_found"
handler500 = "shop.platform.fallbacks.server_error"

# Swagger's page writes styles into itself, and its pictures are data
api_docs = csp_update({"style-src": [csp.SELF, csp.UNSAFE_INLINE], "img-src": [csp.SELF, "data:"]})(
    DocsView.as_view()
)

api_v1 = [
    path("idempotency-tokens", TokenList.as_view(), name="idempotency-tokens"),
    *shop.api.urls.urlpatterns,
    path("orders/<hexid:order_id>/events", OrderEvents.as_view(), name="api-order-events"),
    *payments.urls.api_urlpatterns,
]

urlpatterns = [
    path("api/v1/", include(api_v1)),
    path("api/schema/", conditional_page(SchemaView.as_view()), name="schema"),
    path("api/docs/", api_docs, name="api-docs"),
    path("api/docs/problems", problems, name="api-problems"),
    path("api", no_such_call),
    path("api/", no_such_call),
    path("api/<path:address>", no_such_call),
    path("webhooks/", include(payments.urls.webhook_urlpatterns)),
    path("admin/login/", limits_guesses(admin.site.login)),
    path("admin/", admin.site.urls),
    path("accounts/login/", limits_guesses(LoginView.as_view(redirect_authenticated_user=True)), name="login"),
    path(
        "accounts/logout/",
        posted_only(back_to="catalogue", named=False)(auth_views.LogoutView.as_view()),
        name="logout",
    ),
    # where browsers look by themselves: on the admin's pages, and beside documents
    path("favicon.ico", RedirectView.as_view(url=f"{settings.STATIC_URL}shop/icon.svg")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include(shop.web.pages.urlpatterns)),
]
if settings.SANDBOX_URL:
    urlpatterns.append(path("demo/attempts/<hexid:attempt_id>", shop.devserver.demo.shopper_is_led))
urlpatterns.append(path("<path:address>", no_such_page))
