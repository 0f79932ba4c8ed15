"""Evaluates what users send in child processes that can be cut off.

What enters: an object with the rules in force, or a large object to validate, each with its namespace.
What leaves: mutations or problems; or `RefusedError`, if the work is invalid, costs too much CPU or
memory, or if too much of its namespace waits already.
Nothing is imported here: a child process has what it evaluates with, and no more.
"""
