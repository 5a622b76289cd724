"""Style, script and chart library, held in memory; their address changes with their content, so browsers keep them."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from typing import Final

CHART_PACKAGE: Final = "uplot-python"
"""Carries uPlot, a chart library of 33 KiB; its Python side is never imported."""
TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    media_type: str
    body: bytes
    zipped: bytes


class Assets:
    """All of them, by name."""

    def __init__(self) -> None:
        own = files("sentinel.web") / "static"
        bodies = {name: (own / name).read_bytes() for name in ("page.css", "page.js", "curve.js", "icon.svg")}
        bodies |= _chart_library()
        self.digest: Final = hashlib.sha256(b"".join(bodies[name] for name in sorted(bodies))).hexdigest()[:12]
        self.charts: Final = "uplot.js" in bodies
        """Whether curves can be drawn; every fact is on the pages without them."""
        self._assets = {name: _asset(name, body) for name, body in bodies.items()}

    def get(self, name: str) -> Asset | None:
        """The file, if there is one of that name."""
        return self._assets.get(name)


def _chart_library() -> dict[str, bytes]:
    try:
        package = distribution(CHART_PACKAGE)
    except PackageNotFoundError:
        return {}
    places = {"uplot.js": "uplot/static/uPlot.iife.js", "uplot.css": "uplot/static/uPlot.min.css"}
    found = {name: package.locate_file(place) for name, place in places.items()}
    return {name: path.read_bytes() for name, path in found.items() if path.is_file()}  # type: ignore[attr-defined]


def _asset(name: str, body: bytes) -> Asset:
    media_type = f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    return Asset(media_type, body, gzip.compress(body, 9, mtime=0))
