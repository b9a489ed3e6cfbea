"""Recipes: lists of commands in TOML, and what runs them."""
