"""What strangers' bytes meet first, tried with bytes that nobody would send: `make fuzz`.

`readers` names each reader and what must hold whatever it is given; `__main__` has Atheris look for bytes with which
it does not, led by the branches that they reach; `test_readers` tries some with Hypothesis in every `make test`.
"""
