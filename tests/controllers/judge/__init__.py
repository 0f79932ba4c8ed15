"""What the API server said, and what follows from it.

Changes of objects enter, as a watch of this package has them. What leaves is who ran when, who was let go
when, and how much ran at once. Nothing that our services wrote to NATS or to their logs is read.
"""
