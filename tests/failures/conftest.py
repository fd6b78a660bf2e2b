"""Lets the tests of this folder import `failure_tools`, in workers too."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)
