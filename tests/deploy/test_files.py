"""The files of deploy/ and the pages about them are in step with each other, and with the command."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests.deploy.nginx import DEPLOY, Nginx, find
from tests.deploy.test_nginx_tls import Certificates
from tests.interop.processes import ROOT
from tieline.cli.root import root

PROJECT = ROOT / "src/tieline/cli/templates"
PAGES = (ROOT / "docs/deploying.md", ROOT / "docs/proxies.md", PROJECT / "README.md.in")
END_S = 8  # of a server, behind its drain: agents that do not heed their cancellation, then connections
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def compose() -> dict[str, Any]:
    """The compose file with the values that stand where .env says nothing."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (DEPLOY / "compose.yaml").read_text())
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def unit() -> dict[str, list[str]]:
    """The lines of the unit by their names."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "tieline.service").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def manifests() -> list[dict[str, Any]]:
    return [each for path in KUBERNETES for each in yaml.safe_load_all(path.read_text()) if "kind" in each]


def manifest(kind: str) -> dict[str, Any]:
    (found,) = (each for each in manifests() if each["kind"] == kind)
    return found


def container(kind: str) -> dict[str, Any]:
    (found,) = manifest(kind)["spec"]["template"]["spec"]["containers"]
    return dict(found)


def dockerfile(path: Path, instruction: str, *, of: str = "") -> list[str]:
    """The words of an instruction, `of` another one, which has to be in its form without a shell."""
    before = rf"{of} .*\\\n\s+" if of else ""
    (found,) = re.findall(rf"^{before}{instruction} (\[.*\])$", path.read_text(), re.MULTILINE)
    return [str(word) for word in json.loads(found)]


def page_commands(page: Path) -> Iterator[str]:
    """What the shell blocks of a page run, a command each."""
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        told = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        for line in told or block.splitlines():
            yield re.sub(r"\s+#.*", "", line)


def commands() -> dict[str, list[str]]:
    """Every command line of `tieline` in the files, by where it is."""
    entry, default = (dockerfile(DEPLOY / "Dockerfile", name) for name in ("ENTRYPOINT", "CMD"))
    found = {
        "Dockerfile": entry + default,
        "the project's Dockerfile": dockerfile(PROJECT / "Dockerfile.in", "ENTRYPOINT"),
        "tieline.service": shlex.split(unit()["ExecStart"][0]),
        "migrate.yaml": container("Job")["command"],
        "deployment.yaml": container("Deployment")["command"],
    }
    for name, service in compose()["services"].items():
        if "entrypoint" in service:
            found[f"compose.yaml, {name}"] = service["entrypoint"] + service["command"]
    for page in PAGES:
        for number, line in enumerate(page_commands(page)):
            if line.startswith("tieline "):
                found[f"{page.name}, command {number}"] = shlex.split(line)
    return found


def parsed(words: list[str]) -> Mapping[str, Any]:
    """What click makes of a command line. Raises click.UsageError where it makes no sense."""
    assert Path(words[0]).name == "tieline"
    command: click.Command | None = root
    context = click.Context(root, info_name="tieline")
    rest = words[1:]
    while isinstance(command, click.Group):
        command = command.get_command(context, rest.pop(0))
    assert command is not None, f"there is no such command: {words}"
    return command.make_context(words[1], rest, parent=context).params


@pytest.mark.parametrize("where", commands())
def test_command_line_is_one_that_the_command_understands(where: str) -> None:
    parsed(commands()[where])


def test_every_page_and_file_has_a_command_that_is_looked_at() -> None:
    found = " ".join(commands())
    assert all(name in found for name in ("deploying.md", "proxies.md", "README.md", "agent-1", "agent-2", "migrate"))


def test_unknown_option_would_be_found() -> None:
    with pytest.raises(click.UsageError, match="--no-such-thing"):
        parsed(["tieline", "serve", "agent.py", "--no-such-thing"])


# --- time to stop -----------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    assert re.fullmatch(r"\d+s", text), text
    return float(text[:-1])


def test_what_ends_a_server_waits_for_longer_than_its_drain() -> None:
    service = compose()["services"]["agent-1"]
    drain = parsed(service["entrypoint"] + service["command"])["drain"]
    assert seconds(service["stop_grace_period"]) >= drain + END_S
    drain = parsed(shlex.split(unit()["ExecStart"][0]))["drain"]
    assert seconds(unit()["TimeoutStopSec"][0]) >= drain + END_S
    pod = manifest("Deployment")["spec"]["template"]["spec"]
    drain = parsed(container("Deployment")["command"])["drain"]
    pause = float(container("Deployment")["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= pause + drain + END_S


def test_signal_of_the_end_reaches_the_server_and_not_a_shell() -> None:
    for path in (DEPLOY / "Dockerfile", PROJECT / "Dockerfile.in"):
        assert dockerfile(path, "ENTRYPOINT")[0] == "tieline"
        assert "STOPSIGNAL SIGTERM" in path.read_text()
    assert unit()["KillMode"] == ["mixed"]


def test_images_are_made_of_what_is_there() -> None:
    for path, there in (
        (DEPLOY / "Dockerfile", {each.name for each in ROOT.iterdir()}),
        (PROJECT / "Dockerfile.in", {each.name.removesuffix(".in") for each in PROJECT.iterdir()}),
    ):
        copied = re.findall(r"^COPY (.*) \S+$", path.read_text(), re.MULTILINE)
        assert copied
        assert {name for line in copied for name in line.split()} <= there
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    replica = compose()["services"]["agent-1"]
    assert (DEPLOY / replica["build"]["context"] / replica["build"]["dockerfile"]).is_file()
    assert (DEPLOY / replica["volumes"][0].split(":")[0]).is_file()


# --- what is reached, and how -----------------------------------------------------------------------------------------


def test_health_is_asked_for_where_the_server_has_it() -> None:
    for path in (DEPLOY / "Dockerfile", PROJECT / "Dockerfile.in"):
        assert "http://127.0.0.1:8000/healthz" in dockerfile(path, "CMD", of="HEALTHCHECK")[2]
    agent = container("Deployment")
    assert agent["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert agent["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert agent["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    ports = {port["name"]: port["containerPort"] for port in agent["ports"]}
    options = parsed(agent["command"])
    assert ports == {"http": options["port"], "grpc": options["grpc_port"]}


def test_proxies_lead_to_the_replicas_and_take_what_these_take() -> None:
    services = compose()["services"]
    upstream = re.findall(r"server ([\w-]+):(\d+)", (DEPLOY / "nginx.conf").read_text())
    assert [name for name, _ in upstream] == [name for name in services if name.startswith("agent-")]
    option = {param.name: param for param in root.get_command(click.Context(root), "serve").params}  # type: ignore[union-attr]
    assert {port for _, port in upstream} == {str(option["port"].default)}
    limit = str(option["max_body"].default).lower()
    for path in (DEPLOY / "nginx.conf", DEPLOY / "nginx-tls.conf"):
        assert f"client_max_body_size {limit};" in path.read_text()
    for ingress in (each for each in manifests() if each["kind"] == "Ingress"):
        assert ingress["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"] == limit
    mounted = {volume.split(":")[0].removeprefix("./") for volume in services["proxy"]["volumes"]}
    assert mounted == {"nginx.conf", "nginx-proxy.conf"}
    assert services["proxy"]["ports"] == ["127.0.0.1:8080:8080"]


def test_labels_lead_from_service_and_budget_to_the_pods() -> None:
    deployment = manifest("Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["replicas"] >= 2
    assert deployment["selector"]["matchLabels"] == labels
    assert manifest("Service")["spec"]["selector"] == labels
    assert manifest("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    ports = {port["name"] for port in manifest("Service")["spec"]["ports"]}
    for ingress in (each for each in manifests() if each["kind"] == "Ingress"):
        for path in ingress["spec"]["rules"][0]["http"]["paths"]:
            assert path["backend"]["service"]["name"] == manifest("Service")["metadata"]["name"]
            assert path["backend"]["service"]["port"]["name"] in ports


# --- what may not be there --------------------------------------------------------------------------------------------


def test_job_that_makes_the_tables_is_in_no_updates_way() -> None:
    """Its template holds the image and the name of the secret, and no Job's template can be changed."""
    assert 0 < manifest("Job")["spec"]["ttlSecondsAfterFinished"] <= 600


def test_no_file_holds_a_secret() -> None:
    for path in [path for path in DEPLOY.rglob("*") if path.is_file()]:
        for user in re.findall(r"(?:postgresql|redis|rediss)://([^\s@/]*)@", path.read_text()):
            assert user.partition(":")[2] in ("", "PASSWORD", "..."), path
    for service in compose()["services"].values():
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or value.startswith("${POSTGRES_PASSWORD:?"), name
    ignored = (ROOT / ".gitignore").read_text().split()
    assert {".env", "secret.env"} <= set(ignored)


def test_nobody_is_root_and_nobody_can_become_it() -> None:
    for path in (DEPLOY / "Dockerfile", PROJECT / "Dockerfile.in"):
        assert re.findall(r"^USER (.*)$", path.read_text(), re.MULTILINE) == ["10001"]
    for name in ("migrate", "agent-1", "agent-2", "proxy"):
        service = compose()["services"][name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for kind in ("Deployment", "Job"):
        pod = manifest(kind)["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["runAsUser"] == 10001
        assert container(kind)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "limits" in container(kind)["resources"]


# --- as the programs see them -----------------------------------------------------------------------------------------


def test_unit_is_one_that_systemd_takes_and_keeps_its_service_in(tmp_path: Path) -> None:
    analyze = find("systemd-analyze")
    program = shutil.which("true")
    assert program is not None
    text = (DEPLOY / "tieline.service").read_text().replace("/opt/tieline/bin/tieline", program)
    path = tmp_path / "tieline.service"
    path.write_text(text)
    for words in (["verify"], ["security", "--offline=true", "--threshold=20", "--no-pager"]):
        done = subprocess.run([analyze, *words, path], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown" not in done.stderr, done.stderr


@pytest.mark.parametrize("file", ["nginx.conf", "nginx-tls.conf"])
def test_nginx_takes_its_file(file: str, tmp_path: Path) -> None:
    with Nginx([8000, 8001], file=file, tls=Certificates(tmp_path).folder) as nginx:
        assert nginx.complaints() == []


def test_header_by_which_a_server_is_to_know_callers_is_one_that_nginx_puts_its_own_in_place_of() -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("authentication.md", "proxies.md")]
    named = {header for page in pages for header in re.findall(r"\bmtls:([A-Za-z-]*[a-z])", page)}
    assert named
    for header in named:
        assert f"proxy_set_header {header} $ssl_client_s_dn;" in (DEPLOY / "nginx-proxy.conf").read_text()
        assert f"grpc_set_header {header} $ssl_client_s_dn;" in (DEPLOY / "nginx-tls.conf").read_text()


def test_yaml_of_the_page_about_proxies_is_yaml() -> None:
    page = (ROOT / "docs/proxies.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert blocks
    assert all(isinstance(yaml.safe_load(block), dict) for block in blocks)


def test_pages_name_files_that_are_there() -> None:
    for page in PAGES[:2]:
        for path in re.findall(r"\bdeploy/[\w./-]*\w", page.read_text()):
            assert (ROOT / path).exists(), path
        for path in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)", page.read_text()):
            assert (page.parent / path).exists(), path
