"""`certify`: every case against one plug-in, and what came of each."""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from traceback import extract_tb

from payments.providers.plugin import Plugin
from payments.testing.bench import Bench, Simulator
from payments.testing.cases import CASES
from payments.testing.verdicts import Broken, Skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Result: what a plug-in has shown.

    Attributes:
        passed: names of cases.
        skipped: a case's name -> why neither simulator nor channel can show it.
        broken: a case's name -> the sentence.
    """

    passed: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)


class NotCertified(AssertionError):
    """Certificate with broken cases; the message has a line for each.

    Args:
        certificate: all that was found.
    """

    def __init__(self, certificate: Certificate) -> None:
        super().__init__("\n".join(f"{name}: {sentence}" for name, sentence in certificate.broken.items()))
        self.certificate = certificate


def certify(plugin: Plugin, simulator: Simulator, *, only: Collection[str] = ()) -> Certificate:
    """Put a plug-in through every case, each with a provider, a relay and trades of its own.

    Args:
        plugin: the `PLUGIN` of its package.
        simulator: of its provider, running.
        only: names of cases, as a certificate has them; all where empty.

    Raises:
        ValueError: `only` has a name that is none.
        NotCertified: it broke at least one.
    """
    passed: list[str] = []
    skipped: dict[str, str] = {}
    broken: dict[str, str] = {}
    cases = {case.__name__.replace("_", " "): case for case in CASES}
    if unknown := set(only) - set(cases):
        raise ValueError(f"no cases: {', '.join(sorted(unknown))}; known are {', '.join(cases)}")
    for name, case in cases.items():
        if only and name not in only:
            continue
        try:
            with closing(Bench(plugin, simulator)) as bench:
                case(bench)
            passed.append(name)
        except Skipped as why:
            skipped[name] = str(why)
        except Broken as sentence:
            broken[name] = str(sentence)
        except Exception as error:
            said = str(error) or f"in {extract_tb(error.__traceback__)[-1].name}"  # as of a method that is missing
            broken[name] = f"{type(error).__name__}: {said}"
    certificate = Certificate(passed=tuple(passed), skipped=skipped, broken=broken)
    if broken:
        raise NotCertified(certificate)
    return certificate
