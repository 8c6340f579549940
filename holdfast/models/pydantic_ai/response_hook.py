"""Has the HTTP clients of Pydantic AI's providers show their responses: what providers say of their rate limits.

Pydantic AI has no public way to the client that a provider has made itself, and replaces it for another event loop. One
that cannot be reached, such as that of Bedrock, shows no headers; its errors are shown in any case.
"""

from __future__ import annotations

from typing import Any, cast

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import Model

from holdfast.models.rate_limits.response_observer import show, show_response


def show_responses(model: Model[Any]) -> None:
    """Have the client that `model` uses now show its responses to whoever observes them."""
    provider: Any = model.provider
    for client in (getattr(provider, "_own_http_client", None), _transport(provider)):
        hooks = getattr(client, "event_hooks", None)
        # one that blocks would not await the hook
        if isinstance(hooks, dict) and hasattr(client, "aclose"):
            shown = cast("dict[str, list[object]]", hooks).setdefault("response", [])
            if show_response not in shown:
                shown.append(show_response)


def show_error(error: Exception) -> None:
    """Show the response that an error of Pydantic AI is about, if it is about one."""
    if isinstance(error, ModelHTTPError):
        show(error.status_code, error.headers or {})


def _transport(provider: object) -> object:
    """Return the HTTP client below a vendor's client; none where there is none."""
    try:
        return getattr(getattr(provider, "client", None), "_client", None)
    except Exception:  # noqa: BLE001  # whatever a vendor's client makes of a name that it does not have
        return None
