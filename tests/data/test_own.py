"""The user's own files."""

import numpy as np
import pytest
from pyarrow import parquet
from tests.support.refusals import expect_refusal

from gossamer.data.load import load

CSV = """age,weight,smoker,hospital,outcome
30,70.5,true,north,ill
41,80,false,south,well
52,64.25,true,north,well
60,90,false,east,ill
"""


@pytest.fixture
def csv(tmp_path):
    def write(text=CSV, name="own.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_csv(csv):
    data = load("csv", path=csv(), label="outcome", owner="hospital")
    assert data.x_train.tolist() == [[30, 70.5, 1], [41, 80, 0], [52, 64.25, 1], [60, 90, 0]]
    assert data.x_train.dtype == np.float32
    assert data.y_train.tolist() == [0, 1, 1, 0]  # ill, well
    assert data.y_train.dtype == np.int64
    assert data.classes == 2
    assert data.owner is not None
    assert data.owner.tolist() == [1, 2, 1, 0]  # east, north, south
    assert data.x_test.shape == (0, 3)
    assert data.y_test.shape == (0,)
    assert not data.public_test


def test_parquet_gives_the_same(csv, tmp_path):
    from pyarrow import csv as arrow_csv

    table = arrow_csv.read_csv(csv())
    dictionary = table.column("outcome").dictionary_encode()
    table = table.set_column(table.column_names.index("outcome"), "outcome", dictionary)
    parquet.write_table(table, tmp_path / "own.parquet")
    options = {"label": "outcome", "owner": "hospital"}
    one, two = (
        load("csv", path=csv(), **options),
        load("parquet", path=str(tmp_path / "own.parquet"), **options),
    )
    assert one.provenance["sha256"] == two.provenance["sha256"]
    assert np.array_equal(one.owner, two.owner)


def test_chosen_features_keep_their_order_and_may_leave_words_out(csv):
    data = load("csv", path=csv(), label="outcome", features=["weight", "age"])
    assert data.x_train[0].tolist() == [70.5, 30]


def test_ranges_and_ball(csv):
    options = {"label": "outcome", "features": ["age", "weight"]}
    data = load("csv", path=csv(), ranges={"age": [0, 100]}, **options)
    assert np.allclose(data.x_train[:, 0], [0.3, 0.41, 0.52, 0.6])
    ball = load("csv", path=csv(), ranges={"age": [0, 100]}, scale="unit-ball", bias=True, **options)
    assert ball.x_train.shape == (4, 3)
    assert np.linalg.norm(ball.x_train, axis=1).max() <= 1
    with expect_refusal(key="data.ranges.height", names="age weight"):
        load("csv", path=csv(), ranges={"height": [0, 1]}, **options)


@pytest.mark.parametrize("ends", [[1, 1], [2, 1], [0], [0, float("inf")], [float("nan"), 1]])
def test_a_range_has_two_finite_ends_in_order(csv, ends):
    with expect_refusal(key="data.ranges.age", remedy=True):
        load("csv", path=csv(), label="outcome", ranges={"age": ends})


def test_public_hold_out(csv):
    test = csv("outcome,weight,age,smoker\nwell,70,50,false\n", "test.csv")
    data = load("csv", path=csv(), label="outcome", owner="hospital", test=test)
    assert data.public_test
    assert data.x_test.tolist() == [[50, 70, 0]]  # columns by name, not by place
    assert data.y_test.tolist() == [1]


def test_hold_out_with_an_unknown_label(csv):
    test = csv("age,weight,smoker,outcome\n50,70,false,dead\n", "test.csv")
    with expect_refusal(key="data.test", names="among"):
        load("csv", path=csv(), label="outcome", owner="hospital", test=test)


def test_hold_out_without_a_column(csv):
    test = csv("age,outcome\n50,ill\n", "test.csv")
    with expect_refusal("data.test", names="weight smoker age outcome"):
        load("csv", path=csv(), label="outcome", owner="hospital", test=test)


@pytest.mark.parametrize(
    ("labels", "task", "classes", "ids"),
    [
        (["3", "1", "3"], None, 2, [1, 0, 1]),
        (["10", "9", "2"], None, 3, [2, 1, 0]),  # whole numbers sort as numbers, not as words
        (["true", "false", "true"], None, 2, [1, 0, 1]),
        (["b", "a", "c"], None, 3, [1, 0, 2]),
        (["1.0", "2.0", "1.0"], "classification", 2, [0, 1, 0]),
        (["1.5", "2.0", "1.0"], None, None, [1.5, 2, 1]),
        (["3", "1", "3"], "regression", None, [3, 1, 3]),
    ],
)
def test_task_from_the_labels(csv, labels, task, classes, ids):
    text = "x,y\n" + "".join(f"1,{label}\n" for label in labels)
    data = load("csv", path=csv(text), label="y", task=task)
    assert data.classes == classes
    assert data.y_train.tolist() == ids
    assert data.y_train.dtype == (np.float32 if classes is None else np.int64)


def test_declared_classes(csv):
    text = "x,y\n1,2\n1,0\n"
    data = load("csv", path=csv(text), label="y", classes=5)
    assert (data.classes, data.y_train.tolist()) == (5, [2, 0])
    data = load("csv", path=csv("x,y\n1,b\n1,b\n"), label="y", classes=["c", "b", "a"])
    assert (data.classes, data.y_train.tolist()) == (3, [1, 1])
    with expect_refusal(key="data.label", names="data.classes"):
        load("csv", path=csv(text), label="y", classes=2)
    with expect_refusal(key="data.classes", value="[2, 2]", remedy=True):
        load("csv", path=csv(text), label="y", classes=[2, 2])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            CSV,
            {"label": "result"},
            "data.label result own.csv age hospital outcome",
        ),
        (CSV, {"label": "outcome", "owner": "clinic"}, "data.owner clinic"),
        (CSV, {"label": "outcome"}, "own.csv hospital"),
        (CSV, {"label": "outcome", "features": ["outcome"]}, "data.features label"),
        (CSV, {"label": "outcome", "features": []}, "data.features leaves"),
        (CSV, {"label": "outcome", "features": ["age", "age"]}, "data.features twice"),
        (
            CSV,
            {"label": "outcome", "owner": "hospital", "task": "ranking"},
            "data.task ranking classification regression multi-label",
        ),
        (CSV, {"label": "outcome", "owner": "hospital", "task": "regression"}, "data.task regression"),
        ("x,y\n1,0\n,1\n3,1\n,0\n", {"label": "y"}, "own.csv x"),
        ("x,y\n1,a\n2,\n3,b\n", {"label": "y"}, "own.csv y"),
        (
            "x,y\n1,0\ninf,1\n3,1\n-inf,0\n",
            {"label": "y"},
            "own.csv x",
        ),
        ("w,x,y\n1,1e60,0\n1,2,1\n", {"label": "y"}, "own.csv x"),
        ("x,y\n1,0.5\n1,inf\n", {"label": "y"}, "own.csv y"),
        ("x,y\n1,0.5\n1,2\n", {"label": "y", "task": "classification"}, "data.task classification"),
        ("x,y\n1,1\n1,1\n", {"label": "y"}, "data.label rows"),
        ("x,y\n", {"label": "y"}, "own.csv rows"),
        ("", {"label": "y"}, "own.csv readable"),
        ("x,y\n1,2,3\n", {"label": "y"}, "own.csv readable"),
        ("x,x,y\n1,2,0\n", {"label": "y"}, "own.csv x"),
    ],
)
def test_mistakes_end_in_one_sentence(csv, text, options, message):
    with expect_refusal(names=message) as caught:
        load("csv", path=csv(text), **options)
    assert "\n" not in str(caught.value)


def test_paths_inside_the_data_folder(csv, tmp_path):
    csv()
    assert load("csv", path="own.csv", data_dir=tmp_path, label="outcome", owner="hospital").classes == 2


def test_train_rows_keep_rows_labels_and_owners_together(csv):
    text = "x,o,y\n" + "".join(f"{i},{i % 7},{i % 3}\n" for i in range(100))
    data = load("csv", path=csv(text), label="y", owner="o", train_rows=40)
    x = data.x_train[:, 0].astype(int)
    assert data.y_train.tolist() == (x % 3).tolist()
    assert data.owner is not None
    assert data.owner.tolist() == (x % 7).tolist()


def test_npz_table(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, x=np.arange(6.0).reshape(3, 2), y=np.array([5, 6, 5]), who=np.array(["b", "a", "b"]))
    data = load("npz", path=str(path), owner="who", ranges={"1": [0, 10]})
    assert np.allclose(data.x_train, [[0, 0.1], [2, 0.3], [4, 0.5]])
    assert data.y_train.tolist() == [0, 1, 0]
    assert data.owner is not None
    assert data.owner.tolist() == [1, 0, 1]
    assert not data.public_test


def test_npz_hold_out_inside_is_not_public_and_a_separate_one_is(tmp_path):
    x, y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 0])
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])
    inside = load("npz", path=str(tmp_path / "own.npz"))
    assert len(inside.x_test) == 1
    assert not inside.public_test
    np.savez(tmp_path / "test.npz", x=x[:2], y=y[:2])
    separate = load("npz", path=str(tmp_path / "own.npz"), test=str(tmp_path / "test.npz"))
    assert len(separate.x_test) == 2
    assert separate.public_test
    np.savez(tmp_path / "test.npz", x=x[:2, :1], y=y[:2])
    with expect_refusal("data.test", names=["(1,)", "shape"]):
        load("npz", path=str(tmp_path / "own.npz"), test=str(tmp_path / "test.npz"))


def test_declared_classes_make_classes_of_whole_numbers_written_as_fractions(csv):
    table = csv("a,y\n1,0.0\n2,1.0\n3,1.0\n")
    data = load("csv", path=table, label="y", classes=2)
    assert (data.classes, data.y_train.dtype, data.y_train.tolist()) == (2, np.int64, [0, 1, 1])
    assert load("csv", path=table, label="y", classes=[1, 0]).y_train.tolist() == [1, 0, 0]
    assert load("csv", path=table, label="y").classes is None  # nothing declared: numbers are targets
    with expect_refusal(key="data.classes", names="data.task regression"):
        load("csv", path=table, label="y", classes=2, task="regression")
    with expect_refusal(key="data.task", value="classification"):
        load("csv", path=csv("a,y\n1,0.5\n2,1\n"), label="y", classes=2)


def test_a_hold_out_is_matched_by_name_and_says_which_names_it_lacks(csv):
    test = csv("y,b,a\n1,2,3\n", "test.csv")
    data = load("csv", path=csv("a,b,y\n1,2,0\n3,4,1\n"), label="y", classes=2, test=test)
    assert (data.x_test.tolist(), data.columns) == ([[3, 2]], ("a", "b"))
    test = csv("y,c,a\n1,2,3\n", "test.csv")
    with expect_refusal(key="data.test", names="b y"):
        load("csv", path=csv("a,b,y\n1,2,0\n3,4,1\n"), label="y", classes=2, test=test)


def test_what_is_public_can_be_had_without_a_record(csv, tmp_path):
    """For whoever packs a study: shape, columns and hold-out, and no training row."""
    from gossamer.data.own import Csv, Npz

    public = csv("a,b,y\n1,2,0\n3,4,1\n", "public.csv")
    source = Csv(path="records-{node}.csv", label="y", classes=2, test=public, ranges={"a": [0, 10]})
    rows = source.public_rows(None)
    found = source.without_records(rows, None, 0)
    assert found.x_train.shape == (0, 2)
    assert found.x_test.tolist() == [[pytest.approx(0.1), 2.0], [pytest.approx(0.3), 4.0]]
    assert (found.columns, found.classes, len(found.owner)) == (("a", "b"), 2, 0)
    named = Csv(path="records-{node}.csv", label="y", classes=["no", "yes"], features=["b"])
    assert named.without_records(named.public_rows(None), None, 0).x_train.shape == (0, 1)
    assert Csv(path="records-{node}.csv", label="y").public_rows(None) is None
    np.savez(tmp_path / "public.npz", x_test=np.ones((3, 4)), y_test=np.arange(3))
    images = Npz(path="records-{node}.npz", classes=3, test=str(tmp_path / "public.npz"))
    assert images.without_records(images.public_rows(None), None, 0).x_test.shape == (3, 4)
    assert Npz(path="records-{node}.npz", classes=3).public_rows(None) is None


DECLARED = {
    "smoker": "boolean",
    "age": {"range": [0, 50], "missing": True},
    "ward": {"levels": ["a", "b"], "other": True},
}
TABLE = "outcome,ward,age,who,smoker\nill,a,10,p,yes\nwell,c,,q,no\nwell,b,90,p,1\n"


def test_declared_columns_are_the_same_out_of_every_file(csv, tmp_path):
    from pyarrow import csv as arrow_csv

    table = arrow_csv.read_csv(csv(TABLE)).select(["smoker", "outcome", "who", "age", "ward"])
    parquet.write_table(table, tmp_path / "own.parquet")
    options = {"label": "outcome", "person": "who", "classes": ["ill", "well"], "columns": DECLARED}
    one = load("csv", path=csv(TABLE), **options)
    two = load("parquet", path=str(tmp_path / "own.parquet"), **options)
    wanted = np.float32([[1, 0.2, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1], [1, 1, 0, 0, 1, 0]])
    np.testing.assert_array_equal(one.x_train, wanted)
    assert one.columns == ("smoker", "age", "age missing", "ward=a", "ward=b", "ward other")
    assert one.person.tolist() == two.person.tolist()
    assert one.provenance["sha256"] == two.provenance["sha256"]


def test_declared_columns_of_a_hold_out(csv):
    test = csv("ward,smoker,age,outcome\nb,no,25,ill\n", "test.csv")
    options = {"label": "outcome", "columns": DECLARED, "classes": ["ill", "well"]}
    data = load("csv", path=csv(TABLE), test=test, **options)
    assert data.x_test.tolist() == [[0, 0.5, 0, 0, 1, 0]]
    with expect_refusal(key="data.test", names="ward"):
        load("csv", path=csv(TABLE), test=csv("smoker,age,outcome\nno,1,ill\n", "test.csv"), **options)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"columns": {"height": [0, 1]}}, "own.csv height data.columns"),
        ({"columns": {"age": [0, 50]}}, "data.columns.age.missing true"),
        ({"features": ["age"]}, "data.features data.columns"),
        ({"ranges": {"age": [0.0, 1.0]}}, "data.ranges data.columns"),
        ({"label": "age"}, "data.columns.age data.label"),
        ({"columns": {"age": {"levels": list(range(30_000))}}}, "data.columns 30000"),
        ({"columns": {"age": {"range": [0]}}}, "data.columns.age.range [0]"),
        ({"columns": {"age": {"range": [2, 1]}}}, "data.columns.age.range"),
        ({"columns": {"age": {"kind": "number"}}}, "data.columns.age.kind number"),
        ({"columns": {"age": 3}}, "data.columns.age 3"),
        ({"classes": ["ill", "dead"]}, "data.label labels among data.classes"),
    ],
)
def test_a_bad_declaration_ends_in_one_sentence(csv, changes, wrong):
    options = {"label": "outcome", "columns": DECLARED, "classes": ["ill", "well"]}
    with expect_refusal(names=wrong) as refused:
        load("csv", path=csv(TABLE), **{**options, **changes})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 300


LABELLED = "a,b,flu,cold,site\n1,2,1,0,n\n3,4,0,1,s\n5,6,1,1,n\n"


def test_several_labels_of_yes_or_no(csv):
    data = load("csv", path=csv(LABELLED), label=["cold", "flu"], owner="site")
    assert data.x_train.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.y_train.tolist() == [[0, 1], [1, 0], [1, 1]]
    assert data.y_train.dtype == np.float32
    assert (data.classes, data.several, data.labels) == (None, 2, ("cold", "flu"))
    declared = {"a": {"kind": "numeric", "range": [0, 10]}}
    short = load("csv", path=csv(LABELLED), label=["cold"], columns=declared)
    assert (short.x_train.shape, short.y_train.tolist()) == ((3, 1), [[0], [1], [1]])


def test_arrays_of_several_labels(tmp_path):
    y = np.array([[0, 1], [1, 1], [0, 0]])
    np.savez(tmp_path / "own.npz", x=np.ones((3, 2)), y=y)
    data = load("npz", path=str(tmp_path / "own.npz"), task="multi-label")
    assert data.y_train.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("options", "text", "says"),
    [
        ({"label": ["flu", "flu"]}, LABELLED, "data.label twice"),
        ({"label": ["flu", "pox"]}, LABELLED, "data.label pox own.csv"),
        (
            {"label": ["flu", "b"], "features": ["a"]},
            LABELLED,
            "data.label yes",
        ),
        ({"label": ["flu", "site"]}, LABELLED, "data.label yes"),
        ({"label": ["flu"], "features": ["flu", "a"]}, LABELLED, "data.features label"),
        ({"label": "flu", "task": "multi-label"}, LABELLED, "data.task data.label"),
        ({"label": ["flu"], "task": "regression"}, LABELLED, "data.task regression"),
        ({"label": ["flu"], "classes": 2, "owner": "site"}, LABELLED, "data.classes data.task multi-label"),
    ],
)
def test_several_labels_that_cannot_be(csv, options, text, says):
    with expect_refusal(names=says):
        load("csv", path=csv(text), **options)


def test_arrays_that_cannot_be_several_labels(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.ones((3, 2)), y=np.ones((3, 2), np.int64))
    with expect_refusal(key="own.npz", names="data.task multi-label", remedy=True):
        load("npz", path=str(tmp_path / "own.npz"))
    np.savez(tmp_path / "own.npz", x=np.ones((3, 2)), y=np.ones(3, np.int64))
    with expect_refusal(key="own.npz", names="3"):
        load("npz", path=str(tmp_path / "own.npz"), task="multi-label")


def test_only_declared_columns_can_be_mapped():
    with expect_refusal(key="data.mapped", value="true", names="data.columns"):
        load("parquet", path="own.parquet", label="y", mapped=True)
