"""Files: keys, the state directory, and the room on its disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from agent.doctor.findings import Check, CheckStatus, Finding, cause_and_fix, failed, in_parts, ok, skipped, warning
from agent.doctor.installed import InstalledProgram
from agent.doctor.quick_check import check_state_dir
from agent.doctor.subject import Subject
from agent.errors import ConfigurationError

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# Of a key file. A group may be how the agent reads a file of root.
_TOO_MUCH: Final = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
_MEMORY_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
_LEAST_BYTES: Final = 16 * 1024 * 1024
_MB: Final = 1_000_000


def _key_files(subject: InstalledProgram) -> Finding:
    paths = _named_keys(subject)
    loose = [path for path in paths if _mode(path) & _TOO_MUCH]
    hidden = _hidden_from_user(subject)
    if hidden is not None:
        return hidden
    if not all(map(subject.may_read, paths)):
        return skipped(f"only root may read them: chgrp {subject.name} and chmod 640 let the doctor look at them too")
    try:
        subject.credentials  # noqa: B018 - reading them is the check
    except ConfigurationError as error:
        if subject.has_sealed_credentials:
            return skipped("the unit hands over encrypted credentials, which only the service itself can read")
        cause, fix = cause_and_fix(error.faults[0])
        return failed("the credentials cannot be used", cause, fix)
    if loose:
        seen = ", ".join(f"{path} has mode {_mode(path):o}" for path in loose)
        cause = "others than its owner may open or change it"
        return warning(seen, cause, f"chmod o=,g-wx {' '.join(map(str, loose))}")
    return _owned_by_strangers(subject, paths) or ok(
        f"{', '.join(map(str, paths)) or 'the credentials'}: nobody else can open them"
    )


def _hidden_from_user(subject: InstalledProgram) -> Finding | None:
    """A file that only root reads, and that the unit does not hand over."""
    handed_over = {each.name for each in subject.unit_credentials if not each.paths or subject.credential_files(each)}
    for name, path in _auth_files(subject).items():
        if path is not None and name not in handed_over and path.is_file() and not subject.user_may_read(path):
            user = subject.unit.get("User")
            cause = f"{user} may not read {path}, and the unit does not hand it over as the credential {name}"
            fix = f"chown {user} {path}, or add LoadCredential={name}:{path} to the unit: systemctl edit {subject.name}"
            return failed(f"the unit runs as {user}", cause, fix)
    return None


def _owned_by_strangers(subject: InstalledProgram, paths: list[Path]) -> Finding | None:
    state = _status(subject.config.state_dir)
    unit_user, unit_groups = subject.user or (0, frozenset())
    users = {0, subject.user_id, unit_user, *([state.st_uid] if state else ())}
    groups = {0, os.getegid(), *unit_groups, *([state.st_gid] if state else ())}
    for path in paths:
        status = path.stat()
        if status.st_uid not in users:
            cause = "it belongs neither to root nor to the unit's user, so its owner can replace the key"
            return warning(f"{path} belongs to user {status.st_uid}", cause, f"chown root {path}")
        if status.st_mode & stat.S_IRGRP and status.st_gid not in groups:
            # Not mended: perhaps that group is how the program reads it.
            cause = "a group that is neither root's nor the unit's may read it"
            return warning(f"{path} belongs to group {status.st_gid}", cause, f"chmod g-r {path}, or chgrp it")
    return None


def _named_keys(subject: InstalledProgram) -> list[Path]:
    named = [*_auth_files(subject).values(), *subject.further_keys]
    given = [path for credential in subject.unit_credentials for path in subject.credential_files(credential)[:1]]
    return list(dict.fromkeys(path for path in (*named, *given) if path is not None and path.is_file()))


def _auth_files(subject: InstalledProgram) -> dict[str, Path | None]:
    """The name of each credential that the configuration needs -> its file."""
    auth = subject.auth
    if auth.mode == "bearer":
        return {"token": auth.token_file}
    return {"api_key": auth.api_key_file, "secret_key": auth.secret_key_file}


def _state_dir(subject: Subject) -> Finding:
    state_dir = subject.config.state_dir
    if not state_dir.exists():
        cause = "the agent was never started, or the directory was removed"
        return warning(f"{state_dir} does not exist", cause, f"mkdir -p -m 700 {state_dir} (systemd makes it itself)")
    if not state_dir.is_dir():
        return failed(f"{state_dir} is no directory", "something else has its name", "remove it, or set state_dir")
    if subject.user_id not in {0, state_dir.stat().st_uid}:
        return skipped(f"{state_dir} is another user's: run the doctor as root")
    _, found = check_state_dir(state_dir)
    if found.verdict is not CheckStatus.OK:
        return in_parts(found, str(state_dir))
    if _mode(state_dir) & _OTHERS:
        cause = "others than its owner may look into it, and it holds tokens and what was commanded"
        return warning(f"{state_dir} has mode {_mode(state_dir):o}", cause, f"chmod 700 {state_dir}")
    return ok(f"{found.seen}; mode {_mode(state_dir):o}")


def _state_dir_durable(subject: Subject) -> Finding:
    mount = _mount_of(subject, subject.config.state_dir)
    if mount is None:
        return skipped("this system does not list its mounts (/proc/self/mountinfo)")
    point, kind, options = mount
    seen = f"it lies on {kind} ({point})"
    if kind in _MEMORY_FILESYSTEMS:
        cause = "a RAM disk: what waits there is lost with the power, and commands may run twice"
        return failed(seen, cause, "set state_dir to a directory on the flash or disk")
    if kind == "overlay":
        return _overlay_durable(subject, seen, options)
    if "ro" in options:
        cause = "the file system is mounted read-only, perhaps by the kernel after errors"
        return failed(seen, cause, f"look into dmesg, then: mount -o remount,rw {point}")
    return ok(seen)


def _overlay_durable(subject: Subject, seen: str, options: list[str]) -> Finding:
    """What is written to an overlay lies in its upper directory, and lasts as long as that does."""
    fix = "set state_dir to a directory on the flash or disk itself, or switch the overlay off (raspi-config)"
    upper = next((each.partition("=")[2] for each in options if each.startswith("upperdir=")), None)
    if upper is None or "ro" in options:
        return failed(seen, "an overlay that cannot be written", fix)
    # Made before the root file system was changed, as at boot, its path is not this one's.
    below = _mount_of(subject, Path(upper)) if Path(upper).is_dir() else None
    if below is None or below[1] == "overlay":
        cause = f"an overlay whose upper directory {upper} cannot be seen from here: most likely it is a RAM disk"
        return warning(seen, f"{cause}, and what waits is lost at each boot", fix)
    if below[1] in _MEMORY_FILESYSTEMS:
        cause = (
            f"what is written goes to {upper} on {below[1]}, a RAM disk: each boot begins with the state of the card"
        )
        return failed(seen, f"{cause}, and commands may run twice", fix)
    return ok(f"{seen}, written to {upper} on {below[1]}")


def _mount_of(subject: Subject, path: Path) -> tuple[str, str, list[str]] | None:
    """Mount point, type and options of the file system that holds ``path`` (proc(5), mountinfo)."""
    text = subject.read("/proc/self/mountinfo")
    best: tuple[str, str, list[str]] | None = None
    wanted = os.path.realpath(path)
    for line in (text or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 6 or not kind:
            continue
        point = fields[4].replace("\\040", " ")
        is_above = point in {"/", wanted} or wanted.startswith(f"{point}/")
        # Of two mounts on one point the later hides the earlier.
        if is_above and (best is None or len(point) >= len(best[0])):
            options = [*fields[5].split(","), *(kind[2].split(",") if len(kind) > 2 else [])]
            best = (point, kind[0], options)
    return best


def _disk_space(subject: Subject) -> Finding:
    room = subject.room(_nearest(subject.config.state_dir))
    free = room.f_bavail * room.f_frsize
    wanted = subject.config.outbox.max_bytes
    seen = f"{free // _MB} MB are free for {subject.config.state_dir}"
    fix = "free space (journalctl --vacuum-size=50M, apt-get clean), or lower outbox.max_bytes"
    if free < _LEAST_BYTES:
        return failed(seen, "the disk is full: readings and results cannot be stored", fix)
    if free < wanted:
        return warning(seen, f"the outbox may grow to {wanted // _MB} MB, and there is not that much", fix)
    return ok(seen)


def _nearest(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


_CONFIGURED: Final = ("configuration",)
KEY_FILES: Final = Check("key_files", "modes and owners of the files with keys and tokens", _key_files, _CONFIGURED)
CHECKS: Final = (
    KEY_FILES,
    Check("state_dir", "the state directory: there, writable, closed to others", _state_dir, _CONFIGURED),
    Check("state_dir_durable", "the file system under the state directory", _state_dir_durable, _CONFIGURED),
    Check("disk_space", "free space for the store", _disk_space, _CONFIGURED),
)
