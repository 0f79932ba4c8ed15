"""What a power cut leaves behind: a log that lost its last messages, and a view that did not.

The server numbers the next messages from where the log ends, and the view takes in only what comes behind
its own source. `compare` finds that out and tells whether a log is still the one that was read; `refill`
publishes the lost messages again, at the same sequences. `lost` finds logs that lack what they had
acknowledged, although their view is no further. `sources` mends what an election leaves behind: a view that
hears nothing of its log any more. What enters is what the server says of streams; what leaves
is a log that is as far as its view, and a notice to the writer that has to publish again.
"""
