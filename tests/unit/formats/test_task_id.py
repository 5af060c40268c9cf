import pytest

from statecore.formats.task_id import GLOBAL_TASK, TaskId
from statecore.formats.topic_partition import TopicPartition


@pytest.mark.parametrize(
    ("name", "task"),
    [("0_3", TaskId(0, 3)), ("12_40", TaskId(12, 40)), ("0_2147483647", TaskId(0, 2**31 - 1)), ("global", GLOBAL_TASK)],
)
def test_a_name_of_a_task_is_parsed_and_written(name, task):
    assert TaskId.parse(name) == task
    assert str(task) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0",
        "0_",
        "_0",
        "0_1/x",
        "../0_1",
        "a_b",
        "-1_0",
        "0_1 ",
        "__north__/0_1",
        "00_1",
        "0_01",
        "0_2147483648",
        "0_99999999999",
        "0_\u0661",
    ],
)
def test_another_name_is_refused(name):
    assert TaskId.match(name) is None
    with pytest.raises(ValueError, match="is not a task"):
        TaskId.parse(name)


def test_tasks_are_sorted_by_numbers_the_global_stores_last():
    mixed = ["global", "10_0", "0_10", "1_0", "0_2"]
    ordered = ["0_2", "0_10", "1_0", "10_0", "global"]
    assert sorted(mixed, key=lambda name: TaskId.parse(name).order) == ordered


def test_a_task_reads_its_partition_of_a_topic():
    assert TaskId.parse("1_7").partition_of("orders") == TopicPartition("orders", 7)
    assert (GLOBAL_TASK.is_global, GLOBAL_TASK.partition) == (True, None)
