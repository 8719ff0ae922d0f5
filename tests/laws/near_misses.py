"""Bytes that are nearly right: valid documents with a few pieces overwritten, removed or inserted."""

import yaml
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Changes = list[tuple[int, int, bytes]]

changes: st.SearchStrategy[Changes] = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 2), st.binary(max_size=4)), max_size=4
)


def examples(count: int) -> settings:
    """Try so many examples, also on a machine that is busy with something else."""
    return settings(deadline=None, max_examples=count, suppress_health_check=[HealthCheck.too_slow])


def edited(raw: bytes, made: Changes) -> bytes:
    """Overwrite, remove and insert pieces of `raw`."""
    for where, removed, piece in made:
        at = where % (len(raw) + 1)
        raw = raw[:at] + piece + raw[at + removed :]
    return raw


string_trees = st.recursive(
    st.text(), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)
near_yaml = st.builds(
    lambda tree, flow, made: edited(
        yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True).encode("utf-8", "surrogatepass"),
        made,
    ),
    string_trees,
    st.booleans(),
    changes,
)
