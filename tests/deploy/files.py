"""The files under deploy/, read as the programs that they are for read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def documents(path: Path) -> list[dict[str, Any]]:
    """Each document of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> Iterator[dict[str, Any]]:
    """Every manifest of a kind."""
    return (each for path in MANIFESTS for each in documents(path) if each["kind"] == kind)


def anchors(text: str) -> set[str]:
    """Of the headings of a Markdown page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
