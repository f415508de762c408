"""What every LangGraph checkpoint saver should promise beyond the published suite: run `SaverContract` over yours.

```python
async def test_my_saver() -> None:
    report = await SaverContract(open_savers, Hooks(lease=hold, wire=ProxyWire(proxy))).run()
    assert report.failed == {}, report
    assert "two_writers_on_one_parent" not in report.not_offered
```

Every contract is passed, failed or not offered: what a saver lacks is said, never passed over in silence. Needs the
extra `langgraph`.
"""

from __future__ import annotations

from blackboard.testing.contracts.savers.case import Case, Contract, Hooks, Savers
from blackboard.testing.contracts.savers.suite import Report, Result, SaverContract
from blackboard.testing.contracts.savers.wire import Cut, ProxyWire, Wire

__all__ = ["Case", "Contract", "Cut", "Hooks", "ProxyWire", "Report", "Result", "SaverContract", "Savers", "Wire"]
