"""The project of a user of the wheel, without the shop; bench.http_rounds and bench.peer_faults serve it."""
