"""The one-time password service: a TaskRun fetches its private key once, over HTTPS.

Enters: private keys from `hosts`, and requests of build scripts. Leaves: each key at most once. Keys are
stored encrypted on the bus, so that any replica can deliver them.
"""
