"""The account that PostgreSQL runs as when we are root: it refuses to run as root itself."""

import fcntl
import os
import pwd
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

from headway_embedded.data_folder import EmbeddedError

ACCOUNT_NAME = "headway-postgres"


class Account(NamedTuple):
    """A user of the system, by its ids."""

    uid: int
    gid: int


def server_account(data: Path | None) -> Account | None:
    """Return the owner of the data, or the service account for new data; `None` unless root."""
    if os.geteuid() != 0:
        return None
    if data is None:
        return _service_account()
    # By id: the same name may have another id in the next container.
    owner = data.stat()
    if owner.st_uid == 0:
        raise EmbeddedError(
            f"folder {data} belongs to root, and PostgreSQL refuses to run as root; "
            f"hand it over with `chown -R {ACCOUNT_NAME} {data}`"
        )
    return Account(owner.st_uid, owner.st_gid)


def open_way(target: Path, account: Account) -> list[Path]:
    """Let the account enter the folders above `target`; return the changed folders."""
    changed = []
    for folder in reversed(target.resolve().parents):
        status = folder.stat()
        if not _may_enter(status, account):
            # Only the right to enter: the folder cannot be listed.
            folder.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)
            changed.append(folder)
    return changed


def _may_enter(status: os.stat_result, account: Account) -> bool:
    """Return whether the mode lets the account enter; the first class that fits decides."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _service_account() -> Account:
    """Return the service account; create it at first use."""
    if (account := _find_account()) is not None:
        return account
    # Locked, because two `useradd` at once can add the same name twice.
    folder = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        return _find_account() or _add_account()
    finally:
        os.close(folder)


def _add_account() -> Account:
    """Add the system user, without a login."""
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    command += ["--shell", "/usr/sbin/nologin", ACCOUNT_NAME]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reason = done.stderr.strip()
    except FileNotFoundError:
        reason = "program useradd is missing"
    if (account := _find_account()) is None:
        raise EmbeddedError(
            f"cannot add user {ACCOUNT_NAME}, which PostgreSQL runs as ({reason}); "
            "add it yourself or start Headway as an ordinary user"
        )
    return account


def _find_account() -> Account | None:
    try:
        entry = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        return None
    return Account(entry.pw_uid, entry.pw_gid)
