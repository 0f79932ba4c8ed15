"""Generates `docs/reference` and the Grafana dashboards from code. Run by `make contracts`.

In: settings, metrics, message contracts, the command line, the life-cycle table. It is above all
services, so it may import each of them; no program imports it.
Out: Markdown, AsyncAPI, OpenAPI and dashboard files, equal for equal code.
"""
