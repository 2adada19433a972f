"""``taskscape advise``: which tasks of a pool to train on for a target."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from taskscape.cli import options as opt
from taskscape.errors import DataError
from taskscape.select.known import AUTO
from taskscape.settings import changed
from taskscape.targets.known import WAYS, AdvisorSettings

OWN = "own"


@opt.command(
    "advise --data glyphs --target my_symbols/ --out advice",
    "advise --data glyphs --target Hexagrams --budget 100 --learner maml",
    "advise --data mine/ --target new/ --experience own",
)
@opt.takes_settings(AdvisorSettings)
def advise(
    target: Annotated[
        str,
        Option(help="Your own data with a few labelled samples, or a group, source or task list."),
    ],
    data: Annotated[
        list[str] | None, Option(help="The sources: a known name or a path; may be repeated.")
    ] = None,
    budget: Annotated[int, Option("--budget", "-n", help="Tasks to choose.")] = 100,
    learner: opt.LearnerName = "protonet",
    way: Annotated[
        str,
        Option(help=f"{opt.meanings(WAYS)}; {AUTO}: whichever promises to gain, if any does."),
    ] = AUTO,
    encoder: Annotated[
        str | None,
        Option(help="What makes features: module:function, such as my_network:encode."),
    ] = None,
    set_values: opt.SetValues = None,
    trials: Annotated[int, Option(help="Trainings of each way.")] = 4,
    experience: Annotated[
        str | None,
        Option(help=f"{OWN}: take each group of the data as the target first, and go by that."),
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="Write a folder: the advice, the tasks, classes and sources chosen."),
    ] = None,
    as_json: opt.AsJson = False,
    **flags: Any,
) -> None:
    """What in the data is like your target, which tasks to train on for it, and what to expect.

    Candidate tasks are drawn from the training classes; a learner is trained on what each way of
    choosing takes from them, and tried on the target's labelled samples, each left out in turn.
    What that says is weighed by how much choosing gained on other targets.
    """
    from taskscape.pools import load_pool
    from taskscape.targets import advise as advise_for
    from taskscape.targets.advice import ADVICE
    from taskscape.targets.rotation import experience_of
    from taskscape.targets.target import find_target

    source = opt.one_source(data)
    if source is None:
        raise DataError("--data is missing: the sources to choose from, such as --data glyphs.")
    opt.check_out(out, ADVICE)
    if experience not in (None, OWN):
        raise DataError(f"--experience {experience}: write {OWN}, or leave it out.")
    opt.refuse_given(advise, way != AUTO and f"--way {way}", experience=experience)
    settings = changed(AdvisorSettings(), opt.given_settings(AdvisorSettings, flags, set_values)[0])
    pool, seen = load_pool(source, encoder=encoder), None
    meant = find_target(target, pool, **settings.target_sizes())
    if experience is not None:
        seen = experience_of(pool, learner, budget, settings, but=target)
    advice = advise_for(
        pool, meant, budget, learner=learner, way=way, settings=settings, trials=trials,
        experience=seen,
    )  # fmt: skip
    if out is not None:
        advice.save(out)
    opt.print_result(as_json, advice.to_dict(), advice.summary(), out)
