"""How well will a trained learner do on a new task? Expected accuracies with intervals."""

from taskscape.forecast.forecaster import Forecaster, ForecastWarning, forecast
from taskscape.forecast.result import FORECASTS_FILE, ForecastEvaluation, Forecasts

__all__ = [
    "FORECASTS_FILE",
    "ForecastEvaluation",
    "ForecastWarning",
    "Forecaster",
    "Forecasts",
    "forecast",
]
