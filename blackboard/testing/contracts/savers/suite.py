"""Running the contracts over a saver, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from blackboard.testing.contracts.savers import crashes, endings, ownership, reading, writing
from blackboard.testing.contracts.savers.case import Case, Contract, Hooks, Savers

__all__ = ["Report", "Result", "SaverContract"]

Verdict = Literal["passed", "failed", "not offered"]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one contract, and why if it is not passed."""

    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of every contract that was run, by its name."""

    results: Mapping[str, Result] = field(default_factory=dict[str, Result])

    @property
    def passed(self) -> list[str]:
        """The contracts that the saver keeps."""
        return [name for name, result in self.results.items() if result.verdict == "passed"]

    @property
    def failed(self) -> dict[str, str]:
        """The contracts that it breaks, and how."""
        return {name: result.why for name, result in self.results.items() if result.verdict == "failed"}

    @property
    def not_offered(self) -> dict[str, str]:
        """The contracts that it does not offer, and what is lacking."""
        return {name: result.why for name, result in self.results.items() if result.verdict == "not offered"}

    def __str__(self) -> str:
        counts = f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.not_offered)} not offered"
        lines = [f"{result.verdict:<11} {name}: {result.why}".rstrip(": ") for name, result in self.results.items()]
        return "\n".join([*lines, counts])


class SaverContract:
    """What LangGraph's savers should promise and the published suite does not ask, over the savers of a factory.

    `savers` opens a saver in an `async with`, as often as asked and several at once; all of them stand on one store, which
    may hold other threads. What a saver has beyond LangGraph's interface is told in `hooks`. The contracts look at nothing but
    the interface, and leave their threads behind.
    """

    contracts: ClassVar[Mapping[str, Contract]] = {
        contract.name: contract
        for module in (reading, writing, endings, ownership, crashes)
        for contract in module.CONTRACTS
    }
    """Every contract, by its name."""

    def __init__(self, savers: Savers, hooks: Hooks | None = None) -> None:
        self.savers, self.hooks = savers, hooks or Hooks()

    async def run(self, only: Collection[str] | None = None) -> Report:
        """Run every contract, or those that are named; raises KeyError for a name that is none."""
        chosen = self.contracts.values() if only is None else [self.contracts[name] for name in only]
        return Report({contract.name: await self.check(contract) for contract in chosen})

    async def check(self, contract: Contract) -> Result:
        """Run one contract; whatever it raises is a failure."""
        async with self.savers() as saver:
            lacking = contract.lacking(saver, self.hooks)
        if lacking is not None:
            return Result("not offered", lacking)
        try:
            await contract.check(Case(self.savers, self.hooks))
        except Exception as error:  # noqa: BLE001 - what the saver raised is what the report is for
            return Result("failed", f"{type(error).__name__}: {error}")
        finally:
            if self.hooks.wire is not None:
                self.hooks.wire.mend()
        return Result("passed")
