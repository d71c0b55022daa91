"""A headless Chromium that has no network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1400,1000",
]  # fmt: skip


@contextmanager
def chromium(profile: Path) -> Iterator[webdriver.Chrome]:
    """The browser; skips the test where there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium and chromedriver: apt-get install chromium chromium-driver")
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


class Page:
    """A page that is open, and what a person does with it."""

    def __init__(self, driver: webdriver.Chrome, file: Path) -> None:
        self.driver = driver
        driver.get_log("browser")
        driver.get(file.absolute().as_uri())
        self.wait(lambda: driver.find_elements(By.CSS_SELECTOR, "main h1"))

    def wait(self, condition: Any) -> Any:
        return WebDriverWait(self.driver, 20, poll_frequency=0.05).until(lambda _: condition())

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.driver.find_elements(By.CSS_SELECTOR, selector)]

    def cells(self, column: str) -> list[str]:
        """What the table shows in a column, of the rows that are in sight, from top to bottom."""
        return self.run(
            "return [...document.querySelectorAll('.ag-row')]"
            ".sort((one, other) => one.getAttribute('row-index') - other.getAttribute('row-index'))"
            ".map((row) => row.querySelector(`[col-id='${arguments[0]}']`).textContent)",
            column,
        )

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)
