"""What is written into an object: the patches of its document, and what an admission gives to its pods.

A compiled document and an object enter, with what flavors choose for each pod set.
Operations of JSON patches leave, which test what they rely on.
"""
