"""What is played, and the rows that it is judged by.

A scenario gets a namespace of its own (`place.py`), creates queues and jobs in it, and acts on them. Its rows
read the history afterwards; each yields what is wrong.
"""
