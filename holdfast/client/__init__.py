"""What other programs use to start, watch and stop agents. Talks to workflows by name, never imports them."""

from typing import TYPE_CHECKING, Any

from holdfast.client.settings import Settings
from holdfast.client.watched import AttemptFailed, TextDelta, Watched
from holdfast.core.errors import MissingPart

if TYPE_CHECKING:
    from holdfast.client.executions import Client

__all__ = ["AttemptFailed", "Client", "Settings", "TextDelta", "Watched"]


def __getattr__(name: str) -> Any:  # noqa: ANN401  # what a module holds
    """Import the client when it is asked for, so that everything else works without the Temporal SDK."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from holdfast.client.executions import Client  # noqa: PLC0415  # the point of this function
    except ModuleNotFoundError as error:
        part = (error.name or "").partition(".")[0]
        if part not in ("temporalio", "obstore"):
            raise
        raise MissingPart(f"a client needs {part}, which is not installed: pip install 'holdfast[temporal]'") from None
    return Client
