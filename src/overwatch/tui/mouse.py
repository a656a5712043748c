"""The terminal's driver with a mouse that reports clicks and the wheel alone, and that can be let go of.

Textual's own driver asks for every movement as well, in pixels where it can: bytes over a slow line that
nobody here reads. Must not know what a click means.
"""

from textual.drivers.linux_driver import LinuxDriver


class ClickDriver(LinuxDriver):
    """Reports clicks and the wheel while it is told to; on every way out the terminal's mouse is its own."""

    def report_mouse(self, *, on: bool) -> None:
        """Report from now on, or leave the mouse to the terminal."""
        if on == self._mouse:
            return
        if on:
            self._mouse = True
            self._enable_mouse_support()
        else:
            self._disable_mouse_support()
            self._mouse = False

    def _enable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")
            self.flush()

    def _disable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000l\x1b[?1006l")
            self.flush()

    def _enable_mouse_pixels(self) -> None:
        """Cells are enough."""
