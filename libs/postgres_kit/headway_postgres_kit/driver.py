"""The connections, rows and errors of asyncpg; only this package imports the driver."""

from typing import TYPE_CHECKING

import asyncpg
from asyncpg import DataError as DataError
from asyncpg import ForeignKeyViolationError as ForeignKeyViolationError
from asyncpg import InsufficientPrivilegeError as InsufficientPrivilegeError
from asyncpg import IntegrityConstraintViolationError as IntegrityConstraintViolationError
from asyncpg import InvalidParameterValueError as InvalidParameterValueError
from asyncpg import ObjectNotInPrerequisiteStateError as ObjectNotInPrerequisiteStateError
from asyncpg import Record as Record
from asyncpg import UndefinedObjectError as UndefinedObjectError
from asyncpg import UniqueViolationError as UniqueViolationError
from asyncpg.cursor import Cursor as Cursor

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection
