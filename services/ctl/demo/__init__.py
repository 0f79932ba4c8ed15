"""`sluice demo`: a generated load, live progress, a summary, and the judgement of the log."""
