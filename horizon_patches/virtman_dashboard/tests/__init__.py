"""Tests of what needs no browser; tests/horizon of the repository has the others.

Run by ``django-admin test virtman_dashboard --settings virtman_dashboard.tests.settings``.
"""
