"""The storages of a collector: one door to the seam and to its two everyday kinds."""

from swactor_diag.collector.local_storage import LocalStorage
from swactor_diag.collector.memory_storage import MemoryStorage
from swactor_diag.collector.storage_seam import (
    Entry,
    EntryKind,
    Storage,
    StorageError,
    StorageFullError,
    StorageMissingError,
    StoragePath,
    StorageTakenError,
    checked_path,
    is_storage_name,
)

__all__ = [
    "Entry",
    "EntryKind",
    "LocalStorage",
    "MemoryStorage",
    "Storage",
    "StorageError",
    "StorageFullError",
    "StorageMissingError",
    "StoragePath",
    "StorageTakenError",
    "checked_path",
    "is_storage_name",
]
