"""The `tigon` command."""
