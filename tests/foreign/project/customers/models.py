"""What django-tenants asks for."""

from django_tenants.models import DomainMixin, TenantMixin


class Customer(TenantMixin):
    """A tenant; its schema is made with it."""

    auto_create_schema = True


class Domain(DomainMixin):
    """A host at which a tenant is."""
