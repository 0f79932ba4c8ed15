"""Clouds that have machines: AWS EC2, IBM Cloud VPC and Power, and a fake one.

Enters: an order, or the name of a machine. Leaves: the state of that machine. `port.Provider` is the
interface, `registry` finds the provider of an account, and other packages can add types.
"""
