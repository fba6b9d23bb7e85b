-- What to run on Citus 12.1 or newer once one primary is not enough: section 1 or section 2, never both.
-- docs/how-to/citus.md says which is for whom. tests/integration/shop/test_citus.py runs the key changes and holds
-- every distribution column against the schema. No cluster has run this file.
--
-- A table spread by hash keeps uniqueness in each shard alone: its unique keys, and foreign keys between two such
-- tables, must hold the distribution column.
-- Source: Citus documentation, "Creating and Modifying Distributed Tables (DDL)", "Schema-based sharding" (read 2026-11)

-- 1. By schema: one shop a schema, whole shops on a node. No table changes.

ALTER DATABASE payonce SET citus.enable_unsafe_triggers TO on;  -- on every node; our triggers stay inside their schema
CREATE ROLE shop_a LOGIN;
CREATE SCHEMA shop_a AUTHORIZATION shop_a;  -- the role finds the schema of its own name
-- then: DATABASE_URL=postgresql://shop_a@coordinator/payonce manage.py migrate
SELECT citus_schema_distribute('shop_a');

-- 2. By row: the ledger, the inbox and the sessions leave; every other table stays on the coordinator.
-- Money, orders, units and jobs are one commit and stay together. Statements that name a ledger entry by its id must
-- name its key too before this runs, or each asks every shard.

-- keys: begin
ALTER TABLE idempotency_ledgerattempt ADD COLUMN key varchar(255);
UPDATE idempotency_ledgerattempt a SET key = e.key FROM idempotency_ledgerentry e WHERE e.id = a.entry_id;
ALTER TABLE idempotency_ledgerattempt ALTER key SET NOT NULL,
    DROP CONSTRAINT idempotency_ledgerat_entry_id_e58b200f_fk_idempoten,
    DROP CONSTRAINT idempotency_ledgerattempt_pkey,
    DROP CONSTRAINT ledger_attempt_one_per_fence;
ALTER TABLE idempotency_ledgerentry DROP CONSTRAINT idempotency_ledgerentry_pkey, ADD PRIMARY KEY (key, id);
ALTER TABLE idempotency_ledgerattempt ADD PRIMARY KEY (key, id), ADD UNIQUE (key, entry_id, fence),
    ADD FOREIGN KEY (key, entry_id) REFERENCES idempotency_ledgerentry (key, id) DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE idempotency_consumedmessage DROP CONSTRAINT idempotency_consumedmessage_pkey,
    ADD PRIMARY KEY (message_id, id);
-- keys: end

-- by key: random where clients make it as ours do; one caller's scope may be hot
SELECT create_distributed_table('idempotency_ledgerentry', 'key', colocate_with => 'none');
SELECT create_distributed_table('idempotency_ledgerattempt', 'key', colocate_with => 'idempotency_ledgerentry');
SELECT create_distributed_table('idempotency_consumedmessage', 'message_id', colocate_with => 'none');
SELECT create_distributed_table('django_session', 'session_key', colocate_with => 'none');
