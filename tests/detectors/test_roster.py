from __future__ import annotations

import importlib
import pkgutil

import sentinel.detectors
from sentinel.detectors.base import Detector
from sentinel.detectors.roster import ROSTER


def test_roster_names_every_detector() -> None:
    """A detector in the folder that the roster forgets would watch nothing."""
    for module in pkgutil.iter_modules(sentinel.detectors.__path__):
        importlib.import_module(f"sentinel.detectors.{module.name}")
    assert set(ROSTER) == {each for each in Detector.__subclasses__() if each.__module__.startswith("sentinel.")}


def test_names_are_distinct() -> None:
    """A snapshot keeps each detector's state under its name."""
    assert len({detector.name for detector in ROSTER}) == len(ROSTER)
