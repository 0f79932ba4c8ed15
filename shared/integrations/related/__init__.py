"""Where the pods of an object are, if not in the object's own fields: in objects that are inside it.

An object enters, with what its document says of the others. Pod sets leave, or an error with the path that
led nowhere: such paths are data, which tenants write.
"""
