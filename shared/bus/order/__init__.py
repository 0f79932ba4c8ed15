"""Which of two messages is newer, and which was never valid.

`generations` tells logs apart that have the same name: after a disaster sequences begin again. `terms`
knows every `Term` of the log of decisions, and so what leaders wrote that had been replaced. `rulings`
judges by them, for commands, too. `overtaken`
finds states that were stored before an older one. `chains` ties a fenced message to the one before it that
is still on its way. `acknowledged` knows what each log must still have. What enters is what the server says
of its streams and messages; what leaves is a number, or a verdict on an entry.
"""
