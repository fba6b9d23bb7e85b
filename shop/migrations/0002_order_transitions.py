"""PostgreSQL itself refuses a step of an order that is not in `shop.orders.lifecycle.NEXT`, and a version that goes back."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION shop_order_guard_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version < OLD.version THEN
        RAISE EXCEPTION 'order %: version % -> % goes back', OLD.id, OLD.version, NEW.version
            USING ERRCODE = 'check_violation', CONSTRAINT = 'order_version_only_grows';
    END IF;
    IF NEW.status IS DISTINCT FROM OLD.status THEN
        IF (OLD.status, NEW.status) NOT IN (('pending', 'paid'), ('pending', 'closed'), ('paid', 'refunded')) THEN
            RAISE EXCEPTION 'order %: % -> % is not a step of an order', OLD.id, OLD.status, NEW.status
                USING ERRCODE = 'check_violation', CONSTRAINT = 'order_step_is_allowed';
        END IF;
        IF NEW.version = OLD.version THEN
            RAISE EXCEPTION 'order %: a new status needs a new version', OLD.id
                USING ERRCODE = 'check_violation', CONSTRAINT = 'order_version_only_grows';
        END IF;
    END IF;
    RETURN NEW;
END;
$$;

CREATE TRIGGER shop_order_guard_step BEFORE UPDATE ON shop_order
    FOR EACH ROW EXECUTE FUNCTION shop_order_guard_step();
"""

BACKWARD = """
DROP TRIGGER shop_order_guard_step ON shop_order;
DROP FUNCTION shop_order_guard_step();
"""


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
