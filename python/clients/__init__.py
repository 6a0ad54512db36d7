"""Clients of other trainers against a running server: `make test-clients`, not `make test`.

Each module begins with what its client is: the trainer's own, unmodified file (from a package on PyPI, or from a
checkout that REWARDLOOP_VERL_OMNI or REWARDLOOP_CHECKOUTS names), or one written for this test from the protocol.
"""
