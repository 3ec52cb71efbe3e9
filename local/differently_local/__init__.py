"""Differently on one machine: an HTTP front and an embedded AWS around the deployed code."""
