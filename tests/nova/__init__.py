"""Tests that need a nova: tools/test.sh nova provides it."""
