"""PostgreSQL itself refuses to make room for another order under the number of one that is there, and an order that
begins anywhere but at the beginning: otherwise who may not unpay an order deletes it and inserts it anew.
"""

from django.db import migrations

# the steps of an order and its insertion as pending call nothing of this
FORWARD = """
CREATE FUNCTION shop_order_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        RAISE EXCEPTION 'order %: begins as pending and not as %', NEW.id, NEW.status
            USING ERRCODE = 'check_violation', CONSTRAINT = 'order_begins_pending';
    END IF;
    RAISE EXCEPTION 'order % stays, under its number', OLD.id
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'order_stays';
END;
$$;

CREATE TRIGGER shop_order_stays BEFORE DELETE OR UPDATE OF id ON shop_order
    FOR EACH ROW EXECUTE FUNCTION shop_order_refuse();
CREATE TRIGGER shop_order_begins BEFORE INSERT ON shop_order
    FOR EACH ROW WHEN (NEW.status <> 'pending') EXECUTE FUNCTION shop_order_refuse();
"""

BACKWARD = "DROP FUNCTION shop_order_refuse() CASCADE;"


class Migration(migrations.Migration):
    dependencies = [("shop", "0006_one_index_each")]

    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
