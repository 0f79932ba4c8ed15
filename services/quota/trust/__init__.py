"""What quota believes of whom (ADR 73). NATS says who wrote a message; these modules say what it may mean.

Outcomes and answers of admission checks come in. What the sender may say goes on to the decider; the rest is
counted in `sluicegate_refused_messages_total`, logged once, and changes nothing.
"""
