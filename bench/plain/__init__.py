"""A stranger's project for `bench.keyed`: REST framework, one view with `atomic()`."""
