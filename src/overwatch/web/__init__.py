"""The page: plain modules that a browser runs as they are, and nothing that Python imports.

Owns the files alone. Rules: no build step, nothing from other hosts, text only as text nodes; a panel shows
what a snapshot has, and never sorts, sums or judges. Must not know collectors.
"""
