"""The shape of the project, where a fact stands twice or a rule has no linter."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MACHINE_PATH = re.compile(r"(?<![\w.}])/(?:home|root|Users|tmp|work)/\w")
SHAPELESS_NAMES = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}


def _project_files() -> list[Path]:
    """What git keeps or would keep, relative to the root; outside a checkout, every visible file."""
    if (ROOT / ".git").exists():
        git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
        return sorted(Path(name) for name in listed if (ROOT / name).is_file())
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part[0] == "." or part == "__pycache__" for part in path.parts))


FILES = _project_files()
MODULES = [path for path in FILES if path.suffix == ".py"]
PACKAGES = [path.parent for path in MODULES if path.name == "__init__.py"]


def _map_of_readme() -> dict[str, str]:
    """Path to description, from the fenced block under README's heading "Map"; a folder's path ends in a slash."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^## Map\n.*?^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert block, 'README.md has no fenced block under a heading "## Map"'
    lines = (line.partition(" ") for line in block[1].splitlines())
    return {path: description.strip() for path, _, description in lines}


def _first_line(package: Path) -> str:
    docstring = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


def test_map_of_readme_is_the_disk() -> None:
    """README's map lists each visible top-level entry and each package, and nothing else."""
    top_level = {f"{path.parts[0]}/" if len(path.parts) > 1 else path.name for path in FILES if path.parts[0][0] != "."}
    packages = {f"{package.as_posix()}/" for package in PACKAGES}
    assert sorted(_map_of_readme()) == sorted(top_level | packages)


def test_map_of_readme_says_what_the_packages_say() -> None:
    """README describes each package by the first line of its docstring."""
    said = {f"{package.as_posix()}/": _first_line(package) for package in PACKAGES}
    described = _map_of_readme()
    assert {path: described.get(path) for path in said} == said


def test_every_source_folder_is_a_package_and_no_other_folder_is() -> None:
    """Modules of dashboards, sentinel and trainer lie in packages; migrations and tests never form one."""
    assert {path.parent for path in MODULES if path.parts[0] in {"dashboards", "sentinel", "trainer"}} == set(PACKAGES)


def test_modules_are_short() -> None:
    """No module has more than 300 lines, no test module more than 500."""
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert not {path: count for path, count in lines.items() if count > (500 if path.parts[0] == "tests" else 300)}


def test_names_say_what_is_inside() -> None:
    """No file or folder has a name under which anything could be put."""
    assert not [path for path in FILES if SHAPELESS_NAMES & {path.stem, *path.parts}]


def test_no_file_names_a_path_of_one_machine() -> None:
    """No text of the project holds an absolute path into somebody's own folders."""
    texts = {path: (ROOT / path).read_bytes().decode("utf-8", errors="ignore") for path in FILES}
    assert not {path: match[0] for path, text in texts.items() if (match := MACHINE_PATH.search(text))}


@pytest.mark.parametrize("package", ["protocol", "transport"])
def test_package_needs_the_standard_library_alone(package: str) -> None:
    """Every module of the package imports in an interpreter that sees no installed package."""
    names = [".".join(path.with_suffix("").parts) for path in MODULES if path.parts[:2] == ("sentinel", package)]
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfor name in {names}: __import__(name)"
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)
