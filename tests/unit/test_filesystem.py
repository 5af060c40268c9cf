"""Trees of files, with links in them."""

from __future__ import annotations

from pathlib import Path

from statecore import filesystem


def test_what_a_link_in_a_deleted_tree_leads_to_is_left_alone(tmp_path: Path) -> None:
    elsewhere, tree = tmp_path / "elsewhere", tmp_path / "tree"
    (elsewhere / "database").mkdir(parents=True)
    (elsewhere / "database" / "file").write_text("kept")
    tree.mkdir()
    (tree / "link").symlink_to(elsewhere)
    filesystem.remove_tree(tree)
    assert not tree.exists()
    assert (elsewhere / "database" / "file").read_text() == "kept"


def test_a_link_to_itself_hides_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for number in range(20):
        (tmp_path / f"file-{number}").write_bytes(b"x" * 1000)
    assert filesystem.tree_bytes(tmp_path) == 20_000 + len("loop")
