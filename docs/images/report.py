"""Draws `report.png`, the report of `make demo`. Run it: `python docs/images/report.py`; needs
chromium."""

import contextlib
import subprocess
import tempfile
from pathlib import Path

from silva.demo import run_demo
from silva.demo.story import REPORT

HERE = Path(__file__).resolve().parent


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run_demo()
        browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        page = Path(folder, REPORT).as_uri()
        shot = ["--window-size=980,1500", f"--screenshot={HERE / 'report.png'}", page]
        subprocess.run([*browser, *shot], check=True)


if __name__ == "__main__":
    main()
