"""The programs of Sluicegate, one package each. They do not import one another."""
