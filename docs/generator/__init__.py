"""Generators of the reference pages. Each module has a function `page`, which returns Markdown."""
