"""README's Python is that of the scripts in ``examples``, which the end-to-end tests run."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from tests.scripts import EXAMPLES

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize(("name", "mark"), [("plain_loop.py", "with Agent("), ("hugging_face.py", "Trainer(model,")])
def test_readme_shows_lines_of_the_example(name: str, mark: str) -> None:
    """Each line of a block of README's for this loop stands in the script, in the same order."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for block in [dedent(each) for each in blocks if mark in each]:
        script = iter((EXAMPLES / name).read_text(encoding="utf-8").splitlines())
        assert not [line for line in block.splitlines() if line and line not in script]
