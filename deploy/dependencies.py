"""What the project is made of beside itself: whether all of it is pinned, and a bill of it.

    python deploy/dependencies.py check        every package that is needed anywhere has the version of its pin
    python deploy/dependencies.py sbom FILE    CycloneDX 1.6 of what the shop runs on in production
    python deploy/dependencies.py lock FILE    requirements of the image with hashes; after each change of a pin

`check` and `sbom` ask only what is installed, `lock` the package index. The bill has neither time nor address in
it: the same packages make the same bytes. Source: CycloneDX 1.6 JSON reference; PEP 508 for markers.
"""

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "payonce"
OURS = (PROJECT, "payonce-payments")
ROOT = Path(__file__).resolve().parent.parent
IN_PRODUCTION = "shop.txt"
EVERYTHING = "dev.txt"
IMAGE_PYTHON = "3.13"  # of the Dockerfile
NOT_PINNED = {PROJECT, "setuptools"}  # the environment's own, of which one package wants any version


def named(file: str) -> list[Requirement]:
    """List what our distributions need and a file of `requirements/` names."""
    lines = [line for distribution in OURS for line in metadata.requires(distribution) or ()]
    waiting = [file]
    while waiting:
        for line in (ROOT / "requirements" / waiting.pop()).read_text().splitlines():
            if line.startswith("-r "):
                waiting.append(line.removeprefix("-r "))
            elif line and not line.startswith(("#", "-e ")):
                lines.append(line)
    found = [Requirement(line) for line in lines]
    return [requirement for requirement in found if canonicalize_name(requirement.name) not in OURS]


def needed(file: str) -> dict[str, list[str]]:
    """Collect the packages that a file brings here, each with those that it needs itself.

    Raises:
        PackageNotFoundError: one is not installed.
    """
    found: dict[str, list[str]] = {}
    waiting: list[tuple[str, tuple[str, ...]]] = [(PROJECT, ("",))]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, wanted = waiting.pop()
        links = found.setdefault(name, [])
        for extra in wanted:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            own = named(file) if name == PROJECT else map(Requirement, metadata.requires(name) or ())
            for requirement in own:
                if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                    needs = canonicalize_name(requirement.name)
                    links.append(needs)
                    waiting.append((needs, ("", *requirement.extras)))
    return {name: sorted(set(links)) for name, links in sorted(found.items())}


def pins(constraints: str) -> dict[str, str]:
    """Name -> version of each line of a constraints file.

    Raises:
        ValueError: a line is no `name==version`.
    """
    found = {}
    for line in constraints.splitlines():
        name, sign, version = line.partition("==")
        if not sign or not version or set(version) & set("*,; "):
            raise ValueError(f"constraints.txt: {line!r} pins nothing; a line is name==version")
        found[canonicalize_name(name)] = version
    return found


def faults(installed: Mapping[str, str], pinned: Mapping[str, str]) -> list[str]:
    """A sentence for each installed package that is not pinned, or pinned otherwise."""
    return [
        f"{name} {version} is installed and constraints.txt has {pinned.get(name, 'no pin of it')}"
        for name, version in sorted(installed.items())
        if pinned.get(name) != version
    ]


def lock(file: str) -> str:
    """Requirements of the image's Python with hashes, for `pip install --require-hashes`.

    Asks the package index that pip is set to. setuptools is in it because the image builds the project with it.

    Raises:
        CalledProcessError: pip finds no wheel of a pinned version.
    """
    pinned = pins((ROOT / "constraints.txt").read_text())
    wanted = [f"{name}=={pinned[name]}" for name in needed(file).keys() - NOT_PINNED]
    hashes: dict[str, set[str]] = {}
    for machine in ("x86_64", "aarch64"):
        tags = [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_28")]
        asked = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        asked += [
            "--only-binary=:all:",
            f"--python-version={IMAGE_PYTHON}",
            "--target=/nowhere",
            "--report=-",
            *tags,
        ]
        done = subprocess.run([*asked, "setuptools>=77", *wanted], check=True, capture_output=True, text=True)
        for one in json.loads(done.stdout)["install"]:
            name = f"{canonicalize_name(one['metadata']['name'])}=={one['metadata']['version']}"
            hashes.setdefault(name, set()).add(one["download_info"]["archive_info"]["hashes"]["sha256"])
    lines = [f"{name} --hash=sha256:{' --hash=sha256:'.join(sorted(found))}" for name, found in hashes.items()]
    return (
        "# made by: python deploy/dependencies.py lock deploy/requirements.txt\n" + "\n".join(sorted(lines)) + "\n"
    )


def bill(file: str) -> str:
    """CycloneDX JSON of what a file of `requirements/` brings."""
    links = needed(file)
    components = {name: _component(name) for name in links}
    bom = Bom(components=[component for name, component in components.items() if name != PROJECT])
    bom.metadata.component = components[PROJECT]
    bom.metadata.timestamp = None  # type: ignore[assignment]
    content = " ".join(f"{name}=={component.version}" for name, component in components.items())
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, content)
    for name, needs in links.items():
        bom.register_dependency(components[name], [components[one] for one in needs])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def _component(name: str) -> Component:
    about = metadata.metadata(name)
    license_named = _license(about)
    return Component(
        type=ComponentType.APPLICATION if name == PROJECT else ComponentType.LIBRARY,
        name=name,
        version=about["Version"],
        bom_ref=f"{name}=={about['Version']}",
        purl=None if name == PROJECT else PackageURL("pypi", name=name, version=about["Version"]),
        licenses=[LicenseFactory().make_from_string(license_named)] if license_named else (),
    )


def _license(about: metadata.PackageMetadata) -> str:
    """License as the package names it: an SPDX expression, a line or a classifier."""
    line = about["License-Expression"] or about["License"] or ""
    if 0 < len(line) <= 64 and "\n" not in line:
        return line
    classified = [one for one in about.get_all("Classifier") or () if one.startswith("License :: ")]
    return classified[0].rpartition(" :: ")[2] if classified else ""


def main(arguments: list[str]) -> int:
    """See the head of this file; 1 if a pin is missing."""
    match arguments:
        case ["check"]:
            every = needed(EVERYTHING)
            installed = {name: metadata.version(name) for name in every.keys() - NOT_PINNED}
            found = faults(installed, pins((ROOT / "constraints.txt").read_text()))
            sys.stderr.writelines(f"{line}\n" for line in found)
            return 1 if found else 0
        case ["lock", path]:
            Path(path).write_text(lock(IN_PRODUCTION))
            return 0
        case ["sbom", path]:
            Path(path).write_text(bill(IN_PRODUCTION))
            return 0
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
