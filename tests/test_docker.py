"""The compose files and the workflow, as far as no Docker engine is needed to know.

Whether the services start and the live tests pass on them, ``make test-docker`` finds out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from retriever import embedded
from retriever.errors import NotSupported

yaml = pytest.importorskip("yaml", reason="reading YAML needs the dependency group test")

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "docker").glob("compose*.yaml"))
NAMES = [path.name for path in FILES]
SERVICES = {path.name: yaml.safe_load(path.read_text())["services"] for path in FILES}
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
JOBS = yaml.safe_load(WORKFLOW.read_text())["jobs"]
NODES = ["node-1", "node-2", "node-3"]

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def servers(name):
    """The services that stay: neither the tests nor what makes three nodes a cluster."""
    return {each: service for each, service in SERVICES[name].items() if each not in ("tests", "cluster")}


def make(*args, path=None, **environ):
    """``make`` in this checkout; environ: set there, and no VALKEY_URL unless given."""
    env = {key: value for key, value in os.environ.items() if key != "VALKEY_URL" and not key.startswith("MAKE")}
    env |= environ | ({"PATH": f"{path}{os.pathsep}{env['PATH']}"} if path else {})
    return subprocess.run(["make", *args], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


# --- compose files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "paths"), [("compose-spec", FILES), ("github-workflows", [WORKFLOW])], ids=["compose", "workflow"]
)
def test_the_files_follow_their_published_schema(schema, paths):
    """The Compose Specification's JSON schema takes every compose file, GitHub's takes the workflow."""
    pytest.importorskip("check_jsonschema", reason="it is in the dependency group test")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_kind_of_server_has_its_file():
    """The bundle alone, Redis alone, and three nodes of the bundle."""
    images = {name: [service["image"].partition(":")[0] for service in servers(name).values()] for name in NAMES}
    assert images == {
        "compose.yaml": ["valkey/valkey-bundle"],
        "compose.redis.yaml": ["redis"],
        "compose.cluster.yaml": ["valkey/valkey-bundle"] * 3,
    }


@pytest.mark.parametrize("name", NAMES)
def test_images_are_pinned_to_a_minor_release(name):
    """A new minor release is a commit; patches come by themselves."""
    images = [service["image"] for service in SERVICES[name].values() if "build" not in service]
    assert all(re.fullmatch(r"[\w/-]+:\d+\.\d+", image) for image in images), images


@pytest.mark.parametrize("name", NAMES)
def test_ports_are_published_on_localhost_only(name):
    """None of the servers asks for a password."""
    ports = [port for service in SERVICES[name].values() for port in service.get("ports", [])]
    assert all(port.startswith("127.0.0.1:") for port in ports), ports


@pytest.mark.parametrize("name", NAMES)
def test_every_server_says_when_it_is_ready(name):
    """A command with ``-e``: without it the client's exit code is 0 for an error too."""
    for service in servers(name).values():
        kind, client, *args = service["healthcheck"]["test"]
        assert (kind, args[0]) == ("CMD", "-e")
        assert client == ("redis-cli" if service["image"].startswith("redis") else "valkey-cli")


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_wait_for_the_server_they_are_given(name):
    """They start on demand, once the server is healthy or the cluster is made; the Dockerfile is there."""
    tests = SERVICES[name]["tests"]
    assert tests["profiles"] == ["tests"]
    assert (ROOT / "docker" / tests["build"]["context"] / tests["build"]["dockerfile"]).is_file()
    host = urlsplit(tests["environment"]["VALKEY_URL"]).hostname
    assert host in servers(name)
    if "cluster" in SERVICES[name]:
        assert tests["depends_on"] == {"cluster": {"condition": "service_completed_successfully"}}
    else:
        assert tests["depends_on"] == {host: {"condition": "service_healthy"}}


def test_the_cluster_is_made_of_its_three_nodes():
    """The one-shot service waits until all are healthy and joins exactly these."""
    cluster = SERVICES["compose.cluster.yaml"]["cluster"]
    assert cluster["depends_on"] == {node: {"condition": "service_healthy"} for node in NODES}
    (script,) = cluster["command"]
    addresses = " ".join(f"{node}:6379" for node in NODES)
    assert f"valkey-cli --cluster create {addresses} --cluster-yes" in script
    assert set(re.findall(r"node-\d", script)) == set(NODES) == set(servers("compose.cluster.yaml"))


def test_the_coordinator_is_an_argument_of_the_module():
    """It stands in one word with the module's path, in the command of each node."""
    for node in servers("compose.cluster.yaml").values():
        assert node["entrypoint"] == ["valkey-server"]
        assert "--loadmodule /usr/lib/valkey/libsearch.so --use-coordinator" in node["command"]


@pytest.mark.live
@pytest.mark.parametrize("split", [False, True], ids=["as written", "in two words"])
def test_a_real_server_reads_the_command_of_a_node(split, tmp_path):
    """It takes every setting and stops at the module alone, which is not on this machine; in two words it does not."""
    try:
        server, _ = embedded._find_server()
    except NotSupported as error:
        pytest.skip(str(error))
    words = SERVICES["compose.cluster.yaml"]["node-1"]["command"]
    if split:
        words = [word for each in words for word in (shlex.split(each) if "coordinator" in each else [each])]
    command = [server, *words, "--port 0", f"--dir {tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30, cwd=tmp_path)
    assert done.returncode != 0
    assert ("Bad directive" in done.stdout + done.stderr) is split
    assert ("Module /usr/lib/valkey/libsearch.so failed to load" in done.stdout) is not split


def test_the_dockerfile_installs_what_the_project_declares():
    """Its extras and its dependency group are those of pyproject.toml."""
    dockerfile = (ROOT / "docker" / "Dockerfile.tests").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ((extras, group),) = re.findall(r"-e '\.\[([\w,]+)\]' --group (\w+)", dockerfile)
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
    assert group in project["dependency-groups"]


# --- make -----------------------------------------------------------------------------------------


@needs_make
def test_test_live_asks_for_a_url():
    """Without VALKEY_URL it stops before it installs anything, and says what to set."""
    done = make("test-live")
    assert done.returncode != 0
    assert "VALKEY_URL is not set" in done.stderr
    assert "Installing" not in done.stdout


@needs_make
@pytest.mark.parametrize("broken", ["none", *NAMES])
def test_test_docker_runs_every_file_and_takes_each_down(broken, tmp_path):
    """Each file's tests are run and what was started is removed, also after a failure, which make reports."""
    calls = tmp_path / "calls"
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$@" >> {calls}\ncase "$*" in "compose -f docker/{broken} run "*) exit 1;; esac\n'
    )
    docker.chmod(0o755)
    done = make("--keep-going", "test-docker", path=tmp_path)
    assert (done.returncode == 0) is (broken == "none"), done.stderr
    expected = []
    for name in NAMES:
        expected.append(f"compose -f docker/{name} run --build --rm tests")
        if name == broken:
            expected.append(f"compose -f docker/{name} logs --tail 100")
        expected.append(f"compose -f docker/{name} down --volumes")
    assert sorted(calls.read_text().splitlines()) == sorted(expected)


# --- the workflow ---------------------------------------------------------------------------------


def commands(job):
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def test_the_jobs_are_one_make_target_each():
    """What a job runs can be run anywhere; the compose files are run by what the README names."""
    assert {job: commands(job) for job in JOBS} == {
        "check": ["make check"],
        "docs": ["make docs"],
        "pure": ["make test-pure"],
        "embedded": ["make test-embedded"],
        "clients": ["make test-clients"],
        "models": ["make test-models"],
        "page": ["make test-page"],
        "docker": ["make --keep-going test-docker"],
        "wheel": ["make wheel"],
    }


@needs_make
@pytest.mark.parametrize("job", JOBS)
def test_a_job_calls_targets_that_exist(job):
    """``make`` knows how to make what the workflow asks for."""
    for command in commands(job):
        program, *args = shlex.split(command)
        assert program == "make"
        done = make("--dry-run", *args)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("job", ["pure", "embedded"])
def test_every_python_is_tried(job):
    """The matrix holds the versions of the classifiers, and the job uses it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert JOBS[job]["strategy"]["matrix"]["python"] == versions == ["3.11", "3.12", "3.13", "3.14"]
    (setup,) = (step for step in JOBS[job]["steps"] if step.get("uses", "").startswith("actions/setup-python@"))
    assert setup["with"]["python-version"] == "${{ matrix.python }}"
