"""Contracts as classes: run them over your server."""
