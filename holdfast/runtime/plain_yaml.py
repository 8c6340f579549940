"""`PlainLoader`: YAML as people write settings in it, and nothing that surprises."""

from __future__ import annotations

from typing import Any

import yaml

from holdfast.core.base.json_parsing import refuse_twice


class PlainLoader(yaml.SafeLoader):
    """YAML without aliases, which can make a small file expand without end, and without a field given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401  # PyYAML's signature
        """Refuse aliases."""
        if self.check_event(yaml.AliasEvent):  # pyright: ignore[reportUnknownMemberType]  # untyped in the stubs
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)  # pyright: ignore[reportUnknownMemberType]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  # PyYAML's signature
        """Refuse a field that is given twice."""
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        refuse_twice(names)
        return super().construct_mapping(node, deep)
