"""Tools that others describe: the operations of an HTTP API, and tools of other agent frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.tools.langchain_tools import from_langchain
    from holdfast.tools.openai_agents_tools import from_openai_agents
    from holdfast.tools.openapi_tools import from_openapi
    from holdfast.tools.pydantic_ai_tools import from_pydantic_ai

__all__ = ["from_langchain", "from_openai_agents", "from_openapi", "from_pydantic_ai"]


__getattr__ = lazy_names(
    __name__,
    {
        "from_langchain": "langchain_tools",
        "from_openai_agents": "openai_agents_tools",
        "from_openapi": "openapi_tools",
        "from_pydantic_ai": "pydantic_ai_tools",
    },
    {"httpx2": "openapi", "openapi_pydantic": "openapi"},
    "from_openapi",
)
