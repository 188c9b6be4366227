"""The embedded Postgres's programs, when another user must run them."""

from __future__ import annotations

from pathlib import Path

from django_outbox.devstack.embedded_postgres import _copy_for_all, _is_readable_by_all


def test_a_server_in_a_closed_folder_is_copied_with_its_libraries(
    tmp_path: Path,
) -> None:
    packages, folder = tmp_path / "site-packages", tmp_path / "folder"
    program = packages / "wheel" / "pginstall18" / "bin" / "postgres"
    library = packages / "wheel.libs" / "libpq.so"
    header = packages / "wheel" / "pginstall18" / "include" / "libpq-fe.h"
    for file in (program, library, header):
        file.parent.mkdir(parents=True)
        file.touch(mode=0o600)
    folder.mkdir()
    server = _copy_for_all(packages / "wheel" / "pginstall18", folder)

    assert server == folder / "wheel" / "pginstall18"
    copies = {path for path in folder.rglob("*") if path.is_file()}
    assert copies == {server / "bin" / "postgres", folder / "wheel.libs" / "libpq.so"}
    assert all(path.stat().st_mode & 0o055 == 0o055 for path in folder.rglob("*"))


def test_one_closed_folder_on_the_way_is_enough(tmp_path: Path) -> None:
    program = tmp_path / "closed" / "bin" / "postgres"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    (tmp_path / "closed").chmod(0o700)
    assert not _is_readable_by_all(program)
