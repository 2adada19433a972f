"""Errors that the user can repair: each names what is wrong, where, and what to do about it."""

__all__ = ["CheckpointError", "DataError", "ProcessesError", "TaskscapeError"]


class TaskscapeError(Exception):
    """Base of all errors that taskscape raises on purpose; the command line prints it plainly."""


class DataError(TaskscapeError, ValueError):
    """The data, or what was asked of it, cannot be used as it is."""


class ProcessesError(TaskscapeError):
    """One of several processes that share a fit was lost by the others."""


class CheckpointError(DataError):
    """A checkpoint is damaged, or of a fit with other settings, data or tasks."""
