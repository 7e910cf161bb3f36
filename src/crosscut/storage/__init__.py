"""Atomic writes: files, locks, and folders that are replaced in one step."""

from crosscut.storage.files import (
    TEMPORARY,
    Lock,
    make_folder,
    regular,
    sync,
    write_arrays,
    write_file,
    write_json,
    writing,
)
from crosscut.storage.folders import Folder, Kind, checksum_of
from crosscut.storage.generations import MARK, WILD, Files, Saved, digest, divides, npy_header
from crosscut.storage.maps import put_down, room

__all__ = [
    "MARK",
    "TEMPORARY",
    "WILD",
    "Files",
    "Folder",
    "Kind",
    "Lock",
    "Saved",
    "checksum_of",
    "digest",
    "divides",
    "make_folder",
    "npy_header",
    "put_down",
    "regular",
    "room",
    "sync",
    "write_arrays",
    "write_file",
    "write_json",
    "writing",
]
