"""What the ledgers of targets say: tables, a figure, the packaged experience.

    python -m experiments.tables.targets

Writes the tables and figures of ``docs/targets.md``, and the gains that
``taskscape advise`` goes by into the package: those of every group of the embedded pool that is
not for testing, with the small network that it trains.
"""

import json
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from scipy.stats import spearmanr
from scipy.stats import t as student

from experiments.tables import DOCS, ROOT, Blocks, ledger, markdown_table
from taskscape.pools.glyphs import BLOCKS, SCRIPTS
from taskscape.targets.gains import GainModel, GainSeen, decide
from taskscape.targets.rotation import gains_seen

JOINED = "targets-glyphs-omniglot"
PACKAGE = ROOT / "src/taskscape/targets"
PACKAGED = {PACKAGE / "experience.json": False, PACKAGE / "experience_joined.json": True}
"""The gains that ``advise`` goes by, and whether their pool was a joined one."""
OMNIGLOT_TEST = {
    "Angelic",
    "Atemayar_Qelisayer",
    "Atlantean",
    "Aurek-Besh",
    "Avesta",
    "Ge_ez",
    "Glagolitic",
    "Gurmukhi",
    "Kannada",
    "Keble",
    "Malayalam",
    "Manipuri",
    "Mongolian",
    "Old_Church_Slavonic_(Cyrillic)",
    "Oriya",
    "Sylheti",
    "Syriac_(Serto)",
    "Tengwar",
    "Tibetan",
    "ULOG",
}
"""The alphabets of its evaluation set."""
PAGE = DOCS / "targets.md"
IMAGES = DOCS / "images"
SHOWN = {
    "prototypes": "prototypes",
    "themes": "image-themes and position",
    "ranks": "mean rank of both",
    "half": "half by it, half by chance",
}
LEARNERS = {"protonet": "ProtoNet", "maml": "MAML"}
SOURCE = "source: "


def entries_of(network: str, learner: str | None = None) -> list[dict[str, Any]]:
    """The finished targets of a ledger."""
    entries = ledger(f"targets-glyphs-{network}")
    return [e for e in entries if learner in (None, e["cell"]["learner"])]


# -- the experience of the package --------------------------------------------------------------


def experience(joined: bool) -> dict[str, Any]:
    """What the ledgers say of groups that are not for testing, in one source or in two."""
    testing = {group.name for group in (*SCRIPTS, *BLOCKS) if group.split == "test"}
    within = [e for e in ledger(JOINED) if not e["cell"].get("without_namesakes")]
    entries = [
        e
        for e in (within if joined else entries_of("mlp"))
        if e["cell"]["target"].split("/")[-1] not in testing | OMNIGLOT_TEST
    ]
    made_by = {
        e["command"]: {k: e[k] for k in ("command", "versions", "hardware")} for e in entries
    }
    pool = "the embedded pool and Omniglot, joined" if joined else "the embedded pool"
    return {
        "what": f"gains over random choice on groups of {pool}, each left out; none of its test "
        "groups",
        "made by": list(made_by.values()),
        "seen": [
            {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in vars(seen).items()}
            for seen in gains_seen(entries)
        ],
    }


def as_text(result: dict[str, Any]) -> str:
    """JSON with a line for every gain."""
    head = json.dumps({k: v for k, v in result.items() if k != "seen"}, indent=1)
    seen = ",\n".join(json.dumps(s, ensure_ascii=False) for s in result["seen"])
    return f'{head[:-2]},\n "seen": [\n{seen}\n]\n}}\n'


# -- tables -------------------------------------------------------------------------------------


def gains(entries: Sequence[dict[str, Any]], way: str, budget: int) -> list[float]:
    """The gain of a way on every target that it was tried on; ``all`` candidates have no budget."""
    return [
        tried["gain"]
        for e in entries
        for tried in e["ways"]
        if tried["way"] == way and (tried["budget"] == budget or way == "all")
    ]


def decided(entries: Sequence[dict[str, Any]], budget: int) -> list[tuple[str, str, float]]:
    """What ``auto`` takes for every target, and gains, with the others as its experience."""
    seen, decisions = gains_seen(entries), []
    for target in dict.fromkeys(e["cell"]["target"] for e in entries):
        model = GainModel.fit([s for s in seen if s.target != target])
        own = {s.way: s for s in seen if s.target == target and s.budget == budget}
        way = decide([model.expect(s.way, s.evidence) for s in own.values()]).way
        decisions.append((target, way, own[way].gain if way in own else 0.0))
    return decisions


def held(seen: Sequence[GainSeen]) -> float:
    """The share of gains in their 90 % intervals, each target predicted from the others."""
    inside = []
    for target in {s.target for s in seen}:
        model = GainModel.fit([s for s in seen if s.target != target])
        for s in seen:
            if s.target == target:
                e = model.expect(s.way, s.evidence)
                inside.append(e.low <= s.gain <= e.high)
    return float(np.mean(inside))


def points(values: Sequence[float], count: bool = True) -> str:
    """Mean over targets with its 95 % interval, and the worst; in points of accuracy.

    With ``count``, also how many targets, where they are few.
    """
    if not values:
        return ""
    x = 100 * np.array(values)
    half = student(len(x) - 1).ppf(0.975) * x.std(ddof=1) / np.sqrt(len(x))
    return (
        f"{_signed(x.mean())} [{_signed(x.mean() - half)}, {_signed(x.mean() + half)}], "
        f"{_signed(x.min())}{_number(len(x)) if count else ''}"
    )


def _number(targets: int) -> str:
    return "" if targets > 20 else f" ({targets} targets)"


def _signed(x: float) -> str:
    text = f"{x:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def table(budget: int = 100) -> str:
    """Gains by way, a column for each learner and network."""
    asked = [("mlp", "protonet"), ("mlp", "maml"), ("conv4", "protonet")]
    own = [entries_of(*of) for of in asked]
    ways = {way: words for way, words in SHOWN.items() if way != "half"}
    rows = [[words, *(points(gains(e, w, budget)) for e in own)] for w, words in ways.items()]
    auto = [points([gain for *_, gain in decided(e, budget)]) for e in own]
    rows.append(["**auto**", *auto])
    rows.append(["all 2,000 candidates", *(points(gains(e, "all", budget)) for e in own)])
    rows.append(
        ["held by `auto`'s 90 % intervals", *(f"{100 * held(gains_seen(e)):.0f} %" for e in own)]
    )
    return markdown_table(["way", *(f"{LEARNERS[r]}, `{network}`" for network, r in asked)], rows)


def joined_table() -> str:
    """Gains on targets of two joined sources, and without the group of the same name among them."""
    entries = ledger(JOINED)
    without = [e for e in entries if e["cell"].get("without_namesakes")]
    sets = {
        "all": [e for e in entries if not e["cell"].get("without_namesakes")],
        "scripts that both have, the other's left out": without,
    }
    rows = []
    for name, every in sets.items():
        cells = []
        for learner in LEARNERS:
            own = [e for e in every if e["cell"]["learner"] == learner]
            auto = [gain for *_, gain in decided(own, 100)]
            cells += [points(auto, count=False), points(gains(own, "all", 100), count=False)]
        rows.append([f"{name} ({len(own)})", *cells])
    columns = [f"{label}, {way}" for label in LEARNERS.values() for way in ("`auto`", "all 2,000")]
    return markdown_table(["targets", *columns], rows)


TABLES = Blocks(
    "experiments/tables/targets.py",
    {
        "gains": table,
        "joined": joined_table,
    },
)


# -- the transfer gap ---------------------------------------------------------------------------


def transfer_gaps(learner: str, measure: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """For every target: distance to each source, and what training on it alone loses.

    Lost against training on the tasks that prototypes choose: those like the target.
    """
    result = []
    for e in entries_of("mlp", learner):
        accuracy = {w["way"]: float(np.mean(w["accuracy"])) for w in reversed(e["ways"])}
        distance = e["distances"][measure]
        sources = [w.removeprefix(SOURCE) for w in accuracy if w.startswith(SOURCE)]
        gap = [accuracy["prototypes"] - accuracy[SOURCE + s] for s in sources]
        result.append(
            (e["cell"]["target"], np.array([distance[s] for s in sources]), np.array(gap))
        )
    return result


def draw_gains() -> None:
    """What 100 tasks chosen by ``auto`` gained on every target, ProtoNet beside MAML."""
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(7.5, 6.4), layout="constrained")
    by_gain = sorted(decided(entries_of("mlp", "protonet"), 100), key=lambda one: one[2])
    first = [target for target, *_ in by_gain]
    for learner, colour, shift in (("protonet", "#4c72b0", 0.18), ("maml", "#dd8452", -0.18)):
        entries = entries_of("mlp", learner)
        chosen = {target: (way, gain) for target, way, gain in decided(entries, 100)}
        bounds = {
            (e["cell"]["target"], w["way"]): (w["low"], w["high"])
            for e in entries
            for w in e["ways"]
            if w["budget"] == 100 and w["way"] != "random"
        }
        x, y = np.array([chosen[t][1] for t in first]), np.arange(len(first)) + shift
        ends = np.array([bounds.get((t, chosen[t][0]), (0.0, 0.0)) for t in first])
        errors = 100 * np.abs(ends.T - x)
        ax.errorbar(
            100 * x, y, xerr=errors, fmt="o", ms=4, color=colour, lw=1, label=LEARNERS[learner]
        )
    ax.axvline(0, color="0.4", lw=0.8)
    ax.set_yticks(np.arange(len(first)), first, fontsize=8)
    ax.set_xlabel("points of accuracy over as many tasks chosen at random")
    ax.grid(axis="x", alpha=0.3)
    ax.legend(frameon=False, loc="lower right")
    ax.set_title("100 training tasks chosen for a target by its few labelled samples", fontsize=10)
    figure.savefig(IMAGES / "gains.png", dpi=130, metadata={"Software": None})
    plt.close(figure)


def draw_transfer_gap() -> None:
    """One figure: the gap against the distance, for two measures of it."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    for ax, (measure, label) in zip(
        axes,
        {"prototypes": "prototypes", "themes": "image-themes and position"}.items(),
        strict=True,
    ):
        result = transfer_gaps("protonet", measure)
        ranks = np.concatenate([np.argsort(np.argsort(d)) + 1 for _, d, _ in result])
        gap = 100 * np.concatenate([g for _, _, g in result])
        ax.scatter(ranks, gap, s=6, alpha=0.25, color="#4c72b0", linewidths=0)
        places = np.unique(ranks)
        middle = [gap[ranks == r] for r in places]
        ax.plot(places, [np.mean(g) for g in middle], color="#c44e52", label="mean over targets")
        within = np.mean([spearmanr(d, g).statistic for _, d, g in result])
        ax.set_title(f"{label}: Spearman {within:.2f} within a target", fontsize=10)
        ax.set_xlabel("source, from the nearest to the farthest")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize=8, loc="upper left")
    axes[0].set_ylabel("points lost by training on it alone")
    figure.savefig(IMAGES / "transfer-gap.png", dpi=130, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    for path, joined in PACKAGED.items():
        path.write_text(as_text(experience(joined)), "utf-8")
    TABLES.write(PAGE)
    mpl.use("agg")
    draw_gains()
    draw_transfer_gap()
    for learner in LEARNERS:
        for measure in ("prototypes", "themes"):
            within = [spearmanr(d, g).statistic for _, d, g in transfer_gaps(learner, measure)]
            print(
                learner,
                measure,
                f"Spearman within a target: {np.mean(within):.2f}",
                f"least {min(within):.2f}",
            )
        chosen = decided(entries_of("mlp", learner), 100)
        print(learner, "auto by target:", {t: f"{100 * g:+.1f}" for t, _, g in chosen})
