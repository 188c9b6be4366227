"""
A real browser without a window: Chromium, as Debian and Ubuntu ship it.

Nothing is downloaded: on a machine without it the tests are skipped, and the summary
of the run says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest

from .waiting import eventually

WITHOUT_BROWSER: Final = (
    "Chromium is not installed: the console was not tested in a browser (apt-get "
    "install chromium chromium-driver)"
)

_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
_SWITCHES: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


def require_browser() -> tuple[str, str]:
    """Return the paths of browser and driver; skip the test where there are none."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip(WITHOUT_BROWSER)
    return browser, driver


class Browser:
    """
    One browser with a profile of its own.

    Args:
        site: what paths are relative to.
        width: of the page in pixels; below 600 it is a phone.
        height: of the page.
        is_dark: whether it prefers dark colours.
    """

    def __init__(
        self, site: str, *, width: int = 1200, height: int = 900, is_dark: bool = False
    ) -> None:
        browser, driver = require_browser()
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = browser
        self._profile = tempfile.TemporaryDirectory(prefix="django-outbox-browser-")
        for switch in (*_SWITCHES, f"--user-data-dir={self._profile.name}"):
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.site = site
        self.driver = webdriver.Chrome(options=options, service=Service(driver))
        self.resize(width, height)
        if is_dark:
            dark = {"name": "prefers-color-scheme", "value": "dark"}
            self.driver.execute_cdp_cmd(
                "Emulation.setEmulatedMedia", {"features": [dark]}
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.driver.quit()
        self._profile.cleanup()

    def resize(self, width: int, height: int) -> None:
        """Show the page in this size."""
        metrics = {"deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            metrics | {"width": width, "height": height},
        )

    def log_in(self, name: str) -> None:
        """Log in to the admin; the password is the name."""
        self.open("/admin/login/")
        for field in ("username", "password"):
            self.find(f"[name={field}]").send_keys(name)
        self.find("[type=submit]").click()
        eventually(lambda: "/login/" not in self.driver.current_url, what="the login")

    def open(self, path: str) -> None:
        self.driver.get(f"{self.site}{path}")

    def find(self, selector: str) -> Any:
        """Return the first element of a CSS selector."""
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        """Return what is shown in an element, nothing while there is none."""
        # In one step: between two, the page may change.
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.driver.execute_script(script, selector))

    def run(self, script: str) -> Any:
        """Return what a script in the page returns."""
        return self.driver.execute_script(script)

    def wait(self, condition: Callable[[], Any], *, what: str) -> Any:
        """Wait for a condition; the error shows the page and its log."""
        return eventually(
            condition,
            what=lambda: f"{what}\n{self.text('body')}\n{self.errors()}",
            interval=0.2,
        )

    def errors(self) -> list[str]:
        """Return what the page has complained of since the last call."""
        driver: Any = self.driver
        return [
            entry["message"]
            for entry in driver.get_log("browser")
            if "favicon.ico" not in entry["message"]
        ]

    def fits(self) -> bool:
        """Whether the page needs no scrolling sideways."""
        return bool(
            self.run("return document.documentElement.scrollWidth <= innerWidth")
        )

    def photograph(self, path: Path) -> None:
        """Save what is shown as a picture with a palette, which is small."""
        from PIL import Image

        self.driver.save_screenshot(str(path))
        with Image.open(path) as picture:
            small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
