from __future__ import annotations

from tests.lock_files import APART, ROOT, check_dependencies


def test_the_lock_file_of_the_cluster_pins_what_its_dependencies_depend_on():
    check_dependencies(ROOT / "requirements" / f"{APART}.txt")
