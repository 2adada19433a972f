"""How well will a trained learner do on a new task? Expected accuracies with intervals."""

from taskscape.forecast.forecaster import Forecaster, ForecastWarning
from taskscape.forecast.forecasting import forecast
from taskscape.forecast.result import Forecasts, Judgement

__all__ = ["ForecastWarning", "Forecaster", "Forecasts", "Judgement", "forecast"]
