"""Files: written whole, read within limits, in folders that one run owns at a time."""

from arbiter.files.folder_locks import FolderInUseError, own_folder
from arbiter.files.formats import read_format, require_folder, require_version
from arbiter.files.whole_files import open_whole, remove_partial_files, write_whole

__all__ = [
    "FolderInUseError",
    "open_whole",
    "own_folder",
    "read_format",
    "remove_partial_files",
    "require_folder",
    "require_version",
    "write_whole",
]
