"""A headless Chromium that has no network, for whatever opens a report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1400,1000",
]  # fmt: skip
MISSING = "no chromium and chromedriver: apt-get install chromium chromium-driver"


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome | None]:
    """The browser, with its own files in ``profile``; None, and ``MISSING`` says the mend, where there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        yield None
        return
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    nothing = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    found.execute_cdp_cmd("Network.enable", {})
    found.execute_cdp_cmd("Network.emulateNetworkConditions", nothing)
    try:
        yield found
    finally:
        found.quit()
