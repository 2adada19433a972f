"""TaskThemes, the scikit-learn-style face of fit and embed."""

from taskscape.estimator.themes import HealthWarning, OutlierTasksWarning, TaskThemes

__all__ = ["HealthWarning", "OutlierTasksWarning", "TaskThemes"]
