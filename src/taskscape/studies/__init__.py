"""Experiments: data in, result objects out."""
