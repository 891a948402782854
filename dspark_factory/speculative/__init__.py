"""Speculation: drafting, acceptance, accept statistics."""
