"""What the project is made of beside itself: whether all of it is pinned, and a bill of it.

    python deploy/dependencies.py check        every package that an extra brings has the version of its pin
    python deploy/dependencies.py sbom FILE    CycloneDX 1.6 of what the shop runs on in production

Only what is installed is asked, no network. The bill has neither time nor address in it: the same packages make
the same bytes. Source: CycloneDX 1.6 JSON reference; PEP 508 for the markers of requirements.
"""

import sys
import uuid
from collections.abc import Iterable, Mapping
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
ROOT = Path(__file__).resolve().parent.parent
IN_PRODUCTION = ("shop",)
NOT_PINNED = {PROJECT, "setuptools"}  # the environment's own, of which one package wants any version


def needed(extras: Iterable[str]) -> dict[str, list[str]]:
    """The packages that the project's `extras` bring in this environment, each with those that it needs itself.

    Raises:
        PackageNotFoundError: one is not installed.
    """
    found: dict[str, list[str]] = {}
    waiting = [(PROJECT, ("", *extras))]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, wanted = waiting.pop()
        links = found.setdefault(name, [])
        for extra in wanted:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for requirement in map(Requirement, metadata.requires(name) or ()):
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
    """A sentence for each installed package that is not pinned, or installed at another version than its pin."""
    return [
        f"{name} {version} is installed and constraints.txt has {pinned.get(name, 'no pin of it')}"
        for name, version in sorted(installed.items())
        if pinned.get(name) != version
    ]


def bill(extras: Iterable[str]) -> str:
    """CycloneDX JSON of what `extras` bring."""
    links = needed(extras)
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
    """As the package names it: by an SPDX expression, else by a line or by a classifier; else nothing."""
    line = about["License-Expression"] or about["License"] or ""
    if 0 < len(line) <= 64 and "\n" not in line:
        return line
    classified = [one for one in about.get_all("Classifier") or () if one.startswith("License :: ")]
    return classified[0].rpartition(" :: ")[2] if classified else ""


def main(arguments: list[str]) -> int:
    """See the head of this file; 1 if a pin is missing."""
    match arguments:
        case ["check"]:
            every = needed(metadata.metadata(PROJECT).get_all("Provides-Extra") or ())
            installed = {name: metadata.version(name) for name in every.keys() - NOT_PINNED}
            told = faults(installed, pins((ROOT / "constraints.txt").read_text()))
            sys.stderr.writelines(f"{line}\n" for line in told)
            return 1 if told else 0
        case ["sbom", path]:
            Path(path).write_text(bill(IN_PRODUCTION))
            return 0
    sys.stderr.write(f"{__doc__}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
