"""The fault lab: the shop under load while everything breaks, and a checker.

    make chaos DURATION=60 SEED=1        python -m tests.system.chaos --duration 60 --seed 1

`plan` draws everything from the seed, `lab` is the system, `faults` breaks it, `clients` use it and keep a `history`,
`recovery` lets it come to rest, `checker` judges. See docs/how-to/run-chaos.md.
"""
