"""Every test of the page opens it in the same browser."""

from tests.overwatch.web.browser import browser, page_of

__all__ = ["browser", "page_of"]
