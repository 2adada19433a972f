"""Task-themes: preparing samples, fitting the model, embedding tasks; TaskThemes does all three."""

from taskscape.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
