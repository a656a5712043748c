"""Every test of the page opens it in one browser, and waits for what it shows as a slow machine needs."""

from playwright.sync_api import expect

from tests.overwatch.web.browser import browser, page_of

__all__ = ["browser", "page_of"]

expect.set_options(timeout=30_000)
