"""The in-process driver: the same core without a server, for tests, notebooks and one-off scripts."""

from holdfast.local.driver import LocalDriver
from holdfast.local.work import Verdict

__all__ = ["LocalDriver", "Verdict"]
