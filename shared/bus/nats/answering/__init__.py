"""Answering requests: what a process answers on its connection, and a service as NATS's own tools know it.

In comes who answers what; requests go to one of those who answer the same, or to each of them. An error
leaves in the headers of NATS's service framework.
"""
