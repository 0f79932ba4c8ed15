"""Books of quota that are kept from the messages alone, to find mistakes of the engine.

Enters: what a leader reads and what it publishes, message by message; read-only, the engine's sums.
Inside: `ledger` keeps who holds what of which queue, with arithmetic of its own; `auditor` judges each
decision by it, compares the engine where something changed, and knows which contradictions still stand.
Leaves: contradictions. While one stands, a term admits nobody. The simulator's judge keeps the same ledger.
"""
