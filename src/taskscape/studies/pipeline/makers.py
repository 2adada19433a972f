"""From settings to the things they describe: model, learners, networks."""

from dataclasses import fields
from typing import Any

from taskscape.errors import DataError
from taskscape.meta import LEARNERS, Architecture, Learner, TrainConfig, conv4, make_learner, mlp
from taskscape.pools import ClassPool
from taskscape.studies.pipeline.config import StudyConfig
from taskscape.themes.estimator import TaskThemes
from taskscape.themes.prepare import PrepareConfig

__all__ = ["learner_of", "network_of", "prepare_config", "theme_model"]


def theme_model(config: StudyConfig) -> TaskThemes:
    """The model of task-themes that the settings ask for, not yet fitted."""
    fit = config.fit
    return TaskThemes(
        fit.task_themes, fit.image_themes, delta=fit.delta,
        covariance=fit.covariance,  # type: ignore[arg-type]
        prepare=prepare_config(fit.prepare),  # type: ignore[arg-type]
        max_passes=fit.max_passes, n_restarts=fit.restarts, ensemble=fit.ensemble,
        random_state=config.seed,
    )  # fmt: skip


def prepare_config(text: str) -> PrepareConfig | str | None:
    """Read ``auto``, ``none``, or steps such as ``power=0.5,l2,centre,pca=32``."""
    if text in ("auto", "none"):
        return text if text == "auto" else None
    steps = dict(word.strip().partition("=")[::2] for word in text.split(","))
    try:
        if not set(steps) <= {"power", "l2", "centre", "pca"}:
            raise ValueError
        return PrepareConfig(
            power=float(steps["power"]) if "power" in steps else None,
            l2="l2" in steps,
            centre="centre" in steps,
            pca=int(steps["pca"]) if "pca" in steps else None,
        )
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"fit.prepare={text!r}: use auto, none, or some of power=0.5,l2,centre,pca=32."
        ) from None


def learner_of(config: StudyConfig, name: str) -> tuple[Learner, dict[str, Any]]:
    """A learner, and the settings of its training besides."""
    own: dict[str, Any] = dict(config.learners.settings.get(name, {}))
    own.pop("scale", None)
    about = set(LEARNERS[name].defaults)
    training = {f.name for f in fields(TrainConfig)} - {"updates", "batch_size"}
    odd = sorted(set(own) - about - training)
    if odd:
        known = ", ".join(["scale", *sorted(about), *sorted(training)])
        raise DataError(
            f"learners.settings.{name}.{odd[0]}={own[odd[0]]!r} is not a setting; {name} has "
            f"{known}."
        )
    rest = {k: v for k, v in own.items() if k not in about}
    _check_kinds(name, own, {**LEARNERS[name].defaults, **_defaults(TrainConfig)})
    TrainConfig(**rest)
    return make_learner(name, **{k: v for k, v in own.items() if k in about}), rest


def _defaults(kind: Any) -> dict[str, Any]:
    return {f.name: f.default for f in fields(kind)}


def _check_kinds(name: str, own: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Numbers must be numbers: text where a number stands by default cannot work."""
    for key, value in own.items():
        usual = defaults[key]
        text, flag = isinstance(usual, str), isinstance(usual, bool)
        if isinstance(value, str) != text or isinstance(value, bool) != flag:
            kind = "text in quotes" if text else "true or false" if flag else "a number"
            raise DataError(f"learners.settings.{name}.{key}={value!r} must be {kind}.")


def network_of(config: StudyConfig, name: str, pool: ClassPool) -> Architecture:
    """The network of a learner, for the samples of a pool."""
    if config.learners.network == "conv4":
        return conv4(pool.sample_shape, config.learners.filters)
    scale = float(config.learners.settings.get(name, {}).get("scale", 1.0))
    return mlp(pool.sample_shape[0], config.learners.widths, scale)
