"""Puts the deployment code inside the wheel, as `holdfast/_app`.

`workflows` and `activities` are names that other packages own: installed at the top level they would overwrite those.
An editable install needs no copy, it runs from the checkout.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class AppInsideWheel(BuildHookInterface[Any]):
    """Hatch's hook for the wheel target."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add workflows, activities, worker.py and workers.py to every wheel but an editable one."""
        if self.target_name == "wheel" and version != "editable":
            for name in ("workflows", "activities", "worker.py", "workers.py"):
                build_data["force_include"][name] = f"holdfast/_app/{name}"
