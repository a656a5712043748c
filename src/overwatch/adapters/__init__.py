"""Hooks into other libraries: `overwatch.adapters.sb3`, `overwatch.adapters.gymnasium`.

Rules: a library is imported by its own adapter only, and an adapter only by users of that library;
nothing an adapter does raises into training. Must not know how anything is sent or judged.
"""
