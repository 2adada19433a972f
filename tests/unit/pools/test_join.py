"""Joined pools: names, splits, one form of images, weights, and classes that sources share."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from taskscape import ClassPool, DataError, join_pools, load_pool
from taskscape.pools import LookAlikeWarning, find_look_alikes
from taskscape.pools.cache import read_pool, write_pool
from taskscape.themes.prepare import PrepareConfig, learn_preparation


def features(n_classes: int, dims: int = 3, seed: int = 0, **more: object) -> ClassPool:
    rng = np.random.default_rng(seed)
    classes = {f"c{c}": rng.normal(size=(4, dims)) for c in range(n_classes)}
    return load_pool(classes, **more)


def strokes(seed: int, *, size: int = 20, n: int = 12) -> np.ndarray:
    """Drawings of one character, bright on black: a path of its own, shaken a little."""
    corners = np.random.default_rng(seed).uniform(0.2, 0.8, (5, 2))
    rng = np.random.default_rng([seed, 1])
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    drawn = []
    for _ in range(n):
        path = corners + rng.normal(scale=0.02, size=corners.shape)
        ink = np.zeros((size, size))
        for a, b in pairwise(path):
            t = np.linspace(0, 1, 25)[:, None, None]
            near = np.hypot(y - (a[0] + t * (b[0] - a[0])), x - (a[1] + t * (b[1] - a[1])))
            ink = np.maximum(ink, np.clip(2 - 40 * near.min(axis=0), 0, 1))
        drawn.append(255 * ink)
    return np.stack(drawn).astype(np.uint8)


def drawings(seeds: range, *, dark: bool = False, size: int = 20, **more: object) -> ClassPool:
    classes = {f"sign{s}": strokes(s, size=size) for s in seeds}
    return load_pool({k: 255 - v if dark else v for k, v in classes.items()}, **more)


# -- names and splits ---------------------------------------------------------------------------


def test_sources_are_the_outer_level_of_groups_and_of_class_names_that_clash() -> None:
    one = features(2, groups=["x", "y"], splits=["train", "test"])
    other = features(3, seed=1, splits=["train", "train", "val"])
    pool = join_pools({"one": one, "other": other}, look_alikes="keep")
    assert pool.name == "one+other"
    assert pool.class_names == ("one/c0", "one/c1", "other/c0", "other/c1", "c2")
    assert pool.groups == ("one/x", "one/y", "other", "other", "other")
    assert pool.splits == ("train", "test", "train", "train", "val")
    assert pool.sources == ("one", "one", "other", "other", "other")
    assert pool.split("val").sources == ("other",)
    assert one.sources is None
    np.testing.assert_array_equal(pool.samples_of("other/c1"), other.samples_of("c1"))
    np.testing.assert_array_equal(pool.samples_of(1), one.samples_of(1))


def test_pools_of_some_classes_of_a_larger_one_can_be_joined() -> None:
    whole = features(6, splits=["train", "test"] * 3)
    pools = {"a": whole.split("train"), "b": features(2, seed=1, splits=["test"] * 2)}
    with pytest.warns(LookAlikeWarning, match="class 'c0' is in both"):
        pool = join_pools(pools)
    assert pool.class_names == ("a/c0", "c2", "c4", "b/c0", "c1")
    np.testing.assert_array_equal(pool.samples_of("c4"), whole.samples_of("c4"))


def test_joined_pools_are_stored_and_have_fingerprints_like_others(tmp_path: Path) -> None:
    pools = {"a": features(2), "b": features(3, seed=1)}
    pool = join_pools(pools)
    assert pool.fingerprint == join_pools(pools).fingerprint
    assert pool.fingerprint != join_pools({"b": pools["b"], "a": pools["a"]}).fingerprint
    assert pool.fingerprint != join_pools({"x": pools["a"], "b": pools["b"]}).fingerprint
    write_pool(pool, tmp_path / "joined")
    again = read_pool(tmp_path / "joined")
    assert (again.fingerprint, again.sources) == (pool.fingerprint, pool.sources)
    assert load_pool(tmp_path / "joined").info["sources"] == ["a", "b"]


def test_features_take_the_wider_type() -> None:
    narrow = ClassPool.from_classes({"n": np.ones((2, 3), dtype=np.float16)})
    pool = join_pools({"wide": features(1), "narrow": narrow})
    assert pool.samples.dtype == np.float32


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"a": features(2)}, "at least two pools; it got 1"),
        (
            {"a": features(2), "b/c": features(2)},
            "'b/c' cannot name a source",
        ),
        (
            {"a": features(2), "b": features(2, dims=5)},
            "features cannot be joined: 'a' has 3 dimensions, 'b' has 5 dimensions",
        ),
        (
            {"a": features(2), "b": drawings(range(2))},
            "'b' has images and 'a' has features; .* encoder=…",
        ),
        (
            {"a": features(2, splits=["train", "test"]), "b": features(2)},
            "'b' has no splits and 'a' has",
        ),
        (
            {"a": features(2), "b": "omniglot"},
            "'b' is a str, not a pool",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_said(pools: dict[str, ClassPool], message: str) -> None:
    with pytest.raises(DataError, match=message):
        join_pools(pools)


# -- one form -----------------------------------------------------------------------------------


def test_images_of_one_form_stay_as_they_are() -> None:
    one, other = drawings(range(2)), drawings(range(2, 4))
    pool = join_pools({"one": one, "other": other})
    assert pool.info["notes"] == []
    np.testing.assert_array_equal(pool.samples, np.concatenate([one.samples, other.samples]))


def test_images_are_brought_to_one_size_ink_and_colour() -> None:
    small, large = drawings(range(2)), drawings(range(2, 4), dark=True, size=40)
    photos = load_pool({"sky": np.random.default_rng(0).integers(0, 256, (3, 30, 25, 3), np.uint8)})
    pool = join_pools({"small": small, "large": large, "photos": photos})
    assert pool.sample_shape == (20, 20, 3)
    assert pool.info["notes"] == [
        "small: brought from grey to colour.",
        "large: brought from 40×40 to 20×20 pixels, from grey to colour, from dark ink on white to "
        "bright ink on black.",
        "photos: brought from 30×25 to 20×20 pixels.",
    ]
    assert np.median(pool.samples_of("sign3")) == 0
    grey = join_pools({"small": small, "photos": photos}, colour=False, image_size=16)
    assert grey.sample_shape == (16, 16)


def test_dark_ink_stays_dark_where_all_is() -> None:
    pools = {"a": drawings(range(2), dark=True), "b": drawings(range(2, 4), dark=True)}
    assert np.median(join_pools(pools).samples) == 255


# -- classes that sources share -----------------------------------------------------------------


def test_look_alikes_are_found_by_their_looks() -> None:
    one = drawings(range(6))
    other = drawings(range(4, 9), dark=True, size=30)
    result = find_look_alikes(one, replace_names(other, "other"))
    assert {(pair.name, pair.other) for pair in result.pairs} == {
        ("sign4", "other0"), ("sign5", "other1")
    }  # fmt: skip
    assert "'sign4' looks like 'other0'" in result.summary()
    assert result.to_dict()["pairs"][0]["distance"] < 0.65
    assert "nothing in common" in repr(find_look_alikes(one, features(3)))


def replace_names(pool: ClassPool, name: str) -> ClassPool:
    classes = {f"{name}{c}": pool.samples_of(c) for c in range(len(pool))}
    return ClassPool.from_classes(classes, splits=pool.splits, groups=pool.groups)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Georgian", "Mkhedruli_(Georgian)", True),
        ("N'Ko", "N_Ko", True),
        ("printed/Greek", "greek", True),
        ("Latin", "Greek", False),
        ("Old Italic", "Italic", True),
        ("1", "2", False),
    ],
)
def test_look_alikes_are_found_by_names_of_groups(one: str, other: str, same: bool) -> None:
    pools = features(1, groups=[one]), replace_names(features(1, groups=[other]), "x")
    assert find_look_alikes(*pools).groups == (((one, other),) if same else ())


def shared() -> dict[str, ClassPool]:
    printed = drawings(
        range(6), splits=["train"] * 3 + ["test"] * 3, groups=["Latin"] * 3 + ["Greek"] * 3
    )
    written = replace_names(
        drawings(range(4, 12), splits=["train"] * 8, groups=["Magic"] * 6 + ["Greek"] * 2), "w"
    )
    return {"printed": printed, "written": written}


def test_test_classes_in_another_training_split_are_warned_of() -> None:
    with pytest.warns(LookAlikeWarning) as caught:
        pool = join_pools(shared())
    (said,) = [str(warning.message) for warning in caught]
    assert said.startswith(
        "Validation or test classes of 'printed' are among the training classes of 'written': "
        "group 'Greek' is also 'Greek'; 'sign"
    )
    assert "look_alikes='drop'" in said
    assert len(pool) == 14
    assert said.startswith(pool.info["look_alikes"][0])


def test_training_classes_that_others_are_tested_on_can_be_left_out() -> None:
    pool = join_pools(shared(), look_alikes="drop")
    assert pool.class_names == (*(f"sign{c}" for c in range(6)), *(f"w{c}" for c in range(2, 6)))
    assert pool.info["notes"] == [
        "written: 4 training classes that other sources are validated or tested on were left out."
    ]
    assert len(join_pools(shared(), look_alikes="keep")) == 14


# -- load_pool ----------------------------------------------------------------------------------


def stored(folder: Path, name: str, pool: ClassPool) -> Path:
    write_pool(pool, folder / name)
    return folder / name


def test_a_plus_joins_sources_and_the_joined_pool_is_cached(
    tmp_path: Path, own_cache: Path
) -> None:
    one = stored(tmp_path, "one", features(2))
    other = stored(tmp_path, "other+more", features(2, seed=1))
    pool = load_pool(f"{one}+{other}")
    assert pool.name == "one+other+more"
    assert pool.sources == ("one", "one", "other+more", "other+more")
    assert len(list((own_cache / "pools").glob("joined-*"))) == 1
    assert load_pool(f"{one}+{other}").fingerprint == pool.fingerprint
    assert load_pool(str(other)).sources is None
    assert len(list((own_cache / "pools").glob("joined-*"))) == 1


def test_a_cached_pool_still_warns(tmp_path: Path) -> None:
    paths = [stored(tmp_path, name, pool) for name, pool in shared().items()]
    for _ in range(2):
        with pytest.warns(LookAlikeWarning, match="are among the training classes"):
            load_pool("+".join(map(str, paths)), split="test")


def test_errors_of_joined_sources_are_clear(tmp_path: Path) -> None:
    one = stored(tmp_path, "one", features(2))
    with pytest.raises(DataError, match="source='omniglott' is neither a known data set"):
        load_pool(f"{one}+omniglott")
    with pytest.raises(DataError, match="two sources are called 'one'"):
        load_pool(f"{one}+{one}")
    with pytest.raises(DataError, match=r"seed=… is not an option for joined data; it takes name,"):
        load_pool(f"{one}+glyphs", seed=1)


# -- weights ------------------------------------------------------------------------------------


def test_no_source_owns_the_preparation_by_its_size() -> None:
    rng = np.random.default_rng(0)
    few = load_pool({"f": rng.normal(size=(30, 4)) * [9, 1, 1, 1] + [4, 0, 0, 0]})
    many = load_pool({f"m{c}": rng.normal(size=(300, 4)) * [1, 8, 1, 1] for c in range(5)})
    pool = join_pools({"few": few, "many": many})
    classes = np.array([5, 0, 3, 1, 2, 4])  # in any order
    learned = learn_preparation(pool, classes, PrepareConfig(pca=2))
    by_source = [few.samples.mean(axis=0), many.samples.mean(axis=0)]
    np.testing.assert_allclose(learned.mean, np.mean(by_source, axis=0), rtol=1e-4, atol=1e-5)
    assert learned.components is not None
    assert np.abs(learned.components[0]).argmax() == 0  # the small source's direction comes first
    plain = ClassPool.from_classes({n: pool.samples_of(n) for n in pool.class_names})
    owned = learn_preparation(plain, classes, PrepareConfig(pca=2))
    assert owned.components is not None
    assert np.abs(owned.components[0]).argmax() == 1
