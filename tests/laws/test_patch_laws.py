"""A patch takes the files before to the files after, whatever they are, by a reading of its own."""

from hypothesis import example, given

from codegenie.eval.collection.patches import patch_of
from tests.support.patches import Tree, applied, changes_between, trees


@given(trees, trees)
@example({"a": (b"x", False)}, {"a/b": (b"x", False)})
@example({"a/b": (b"x\n", False)}, {"a": (b"x\n", True)})
@example({"a": (b"", True)}, {"c": (b"", False)})
def test_a_patch_applied_to_the_files_before_gives_the_files_after(before: Tree, after: Tree) -> None:
    patch, left_out = patch_of(changes_between(before, after))

    assert left_out == 0
    assert applied(patch, before) == after


@given(trees)
def test_files_that_did_not_change_have_no_patch(tree: Tree) -> None:
    assert patch_of(changes_between(tree, tree)) == (b"", 0)


@given(trees, trees)
def test_the_same_files_in_another_order_have_the_same_patch(before: Tree, after: Tree) -> None:
    changes = changes_between(before, after)

    assert patch_of(changes) == patch_of(reversed(changes))
