"""The console's page in a real browser, as somebody uses it.

A browser is started once for each file, a console with a busy queue for each test. The tests are skipped
where there is no Chromium; what the page asks for is tested without one in `tests/integration/console`.
"""
