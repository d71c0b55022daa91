"""A page of ours in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait


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
