"""Answers reviews within a budget: small ones in the event loop, large ones in a process of their own.

What enters: the body of a review, and the rules that are in force.
What happens: the body is measured, read, and reviewed; a process that takes too much is ended.
What leaves: a reply.
"""
