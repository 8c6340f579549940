"""Large data outside Temporal's history: content-addressed, in a folder or a bucket. Decides nothing about agents."""

from typing import TYPE_CHECKING

from holdfast.lazy_names import lazy_names

if TYPE_CHECKING:
    from holdfast.storage.fetch_result_tool import ResultStore
    from holdfast.storage.object_store import objects_at
    from holdfast.storage.parts import EncodedParts
    from holdfast.storage.records import Records

__all__ = ["EncodedParts", "Records", "ResultStore", "objects_at"]

_PLACES = {
    "EncodedParts": "parts",
    "Records": "records",
    "ResultStore": "fetch_result_tool",
    "objects_at": "object_store",
}

__getattr__ = lazy_names(__name__, _PLACES, {"temporalio": "temporal", "obstore": "temporal"}, "storage")
