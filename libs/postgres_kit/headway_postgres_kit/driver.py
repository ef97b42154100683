"""The rows and errors of asyncpg that services handle; only this package imports the driver."""

from asyncpg import DataError as DataError
from asyncpg import ForeignKeyViolationError as ForeignKeyViolationError
from asyncpg import InsufficientPrivilegeError as InsufficientPrivilegeError
from asyncpg import IntegrityConstraintViolationError as IntegrityConstraintViolationError
from asyncpg import InvalidParameterValueError as InvalidParameterValueError
from asyncpg import ObjectNotInPrerequisiteStateError as ObjectNotInPrerequisiteStateError
from asyncpg import Record as Record
from asyncpg import UndefinedObjectError as UndefinedObjectError
from asyncpg import UniqueViolationError as UniqueViolationError
