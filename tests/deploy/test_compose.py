"""The compose file and what it mounts, as they fit each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sentinel.settings import Settings
from tests.dashboards.boards import BOARDS
from tests.deploy.files import DEPLOY, ROOT, documents

COMPOSE = DEPLOY / "compose"
(FILE,) = documents(COMPOSE / "compose.yaml")
SERVICES = FILE["services"]


def _mounts(service: str) -> dict[str, Path]:
    """Files and folders of the project by where the service sees them; named volumes apart."""
    mounts = [each.split(":") for each in SERVICES[service].get("volumes", ())]
    return {parts[1]: (COMPOSE / parts[0]).resolve() for parts in mounts if parts[0].startswith(".")}


def _seen_by(service: str, path: str) -> Path:
    """What the service finds at a path."""
    ((target, source),) = [each for each in _mounts(service).items() if Path(path).is_relative_to(each[0])]
    return source / Path(path).relative_to(target)


def test_it_is_a_compose_file() -> None:
    """The schema of the Compose specification has no objection."""
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*check, COMPOSE / "compose.yaml"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_refers_to_is_there(name: str) -> None:
    """Mounted files, named volumes, networks, secrets, other services, and the build's files."""
    service = SERVICES[name]
    assert all(source.exists() for source in _mounts(name).values())
    volumes = {each.split(":")[0] for each in service.get("volumes", ()) if not each.startswith(".")}
    assert volumes <= set(FILE["volumes"])
    assert set(service["networks"]) <= set(FILE["networks"])
    assert set(service.get("secrets", ())) <= set(FILE["secrets"])
    assert set(service.get("depends_on", ())) <= set(SERVICES)
    if "build" in service:
        assert (COMPOSE / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_every_secret_is_made_and_every_one_is_used(tmp_path: Path) -> None:
    """The script makes each file that the services mount, twice the same, and for its owner alone."""
    script = tmp_path / "secrets.sh"
    script.write_text((COMPOSE / "secrets.sh").read_text())
    made = []
    for _ in range(2):
        subprocess.run(["sh", script], check=True)
        made.append({path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == set(FILE["secrets"])
    assert {each["file"] for each in FILE["secrets"].values()} == {f"secrets/{name}" for name in made[0]}
    assert {name for service in SERVICES.values() for name in service.get("secrets", ())} == set(made[0])
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    assert len(made[0]["sentinel_token"]) == 48


def test_prometheus_scrapes_what_is_there() -> None:
    """The daemon's port, the token, the rules, the nodes and Alertmanager are where the configuration says."""
    (config,) = documents(_seen_by("prometheus", "/etc/prometheus/prometheus.yml"))
    daemon, nodes = config["scrape_configs"]
    assert daemon["static_configs"] == [{"targets": [f"sentinel:{Settings.model_fields['port'].default}"]}]
    assert Path(daemon["authorization"]["credentials_file"]).name in SERVICES["prometheus"]["secrets"]
    assert all(_seen_by("prometheus", path).is_file() for path in config["rule_files"])
    (files,) = nodes["file_sd_configs"][0]["files"]
    assert _seen_by("prometheus", str(Path(files).parent)).is_dir()
    (target,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in SERVICES


def test_grafana_finds_its_source_and_its_dashboards() -> None:
    """The data source is Prometheus of the same file; the folder that is provisioned holds both dashboards."""
    provisioning = Path("/etc/grafana/provisioning")
    (sources,) = documents(_seen_by("grafana", str(provisioning / "datasources" / "sentinel.yml")))
    (providers,) = documents(_seen_by("grafana", str(provisioning / "dashboards" / "sentinel.yml")))
    (source,), (provider,) = sources["datasources"], providers["providers"]
    assert urlsplit(source["url"]).hostname in SERVICES
    assert source["type"] == "prometheus"
    assert (config := documents(DEPLOY / "prometheus" / "prometheus.yml")[0])
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    folder = _seen_by("grafana", provider["options"]["path"])
    assert {path.name for path in folder.glob("*.json")} == set(BOARDS)


def test_the_image_is_built_of_what_the_wheel_needs() -> None:
    """What .dockerignore lets through is there, and holds what the distribution packs."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {name for name in kept if not (ROOT / name).exists()} == set()
    assert {"alembic", "sentinel", "trainer", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"} == kept


@pytest.mark.real
def test_promtool_takes_the_configuration(require_program: Callable[[str], str]) -> None:
    """Its syntax; that a real Prometheus scrapes by it, the dashboards' tests show."""
    command = [require_program("promtool"), "check", "config", "--syntax-only", "prometheus.yml"]
    checked = subprocess.run(command, cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.real
@pytest.mark.parametrize(
    ("labels", "receiver"),
    [({"severity": "critical", "run": "r"}, "pager"), ({"severity": "warning", "run": "r"}, "chat"), ({}, "chat")],
)
def test_amtool_routes_by_severity(
    labels: dict[str, str], receiver: str, require_program: Callable[[str], str]
) -> None:
    """By Alertmanager's own tool critical alerts go to the pager and all others to the chat."""
    amtool, config = require_program("amtool"), DEPLOY / "alertmanager" / "alertmanager.yml"
    checked = subprocess.run([amtool, "check-config", config], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    route = [amtool, "config", "routes", "test", f"--config.file={config}", *(f"{k}={v}" for k, v in labels.items())]
    assert subprocess.run(route, capture_output=True, text=True, check=True).stdout.strip() == receiver
    (file,) = documents(config)
    read = [value for each in file["receivers"] for kind in each.values() if isinstance(kind, list) for value in kind]
    secrets = {Path(path).name for each in read for name, path in each.items() if name.endswith("_file")}
    assert secrets == set(SERVICES["alertmanager"]["secrets"])
