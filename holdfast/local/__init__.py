"""The in-process driver: the same core without a server, for tests, notebooks and one-off scripts."""

from holdfast.local.driver import LocalDriver

__all__ = ["LocalDriver"]
