"""CEL expressions of Integration documents and admission rules.

The text of an expression comes in. Its syntax, the paths that it reads, and explanations of a refusal in
words come out; evaluation itself is `cel-expr-python`.
"""
