from __future__ import annotations

import warnings

from airflow.sdk import Asset

from statecore.airflow.assets import event_extra, snapshot_asset, store_asset, store_uri


def test_airflow_takes_the_uri_as_it_is_written() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asset = store_asset("Orders.v2", "KSTREAM-AGGREGATE-STATE-STORE-0000000003")
    assert asset.uri == "statecore://Orders.v2/KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert asset.name == "Orders.v2/KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert Asset(uri=asset.uri).uri == asset.uri


def test_uris_of_different_stores_differ() -> None:
    assert store_uri("a/b", "c") != store_uri("a", "b/c")


def test_an_event_of_a_very_wide_store_leaves_its_offsets_to_the_report() -> None:
    part = {
        "application_id": "orders", "host": "node-1", "state_dir": "/s", "finished": "then",
        "totals": {"rows": 1, "records": 2}, "digest": "d", "plan_id": "p", "tail_left": 0,
    }  # fmt: skip
    few = event_extra({**part, "committed_offsets": {"0": 9}})
    many = event_extra({**part, "committed_offsets": {str(number): 9 for number in range(1000)}})
    assert (few["committed_offsets"], few["partitions"]) == ({"0": 9}, 1)
    assert [few[name] for name in ("application_id", "host", "state_dir", "restored")] == [
        "orders", "node-1", "/s", "then"
    ]  # fmt: skip
    assert (many["committed_offsets"], many["partitions"]) == (None, 1000)


def test_an_event_marks_stores_restored_by_kafka_streams() -> None:
    part = {
        "application_id": "orders", "host": "node-1", "state_dir": "/s", "finished": "then",
        "totals": {"rows": 0, "records": 0}, "digest": "d", "plan_id": "p", "tail_left": 0,
    }  # fmt: skip
    told = event_extra({**part, "committed_offsets": {"0": -4}, "restored_by_kafka_streams": True})
    assert (told["restored_by_kafka_streams"], told["rows"], told["committed_offsets"]) == (True, 0, {"0": -4})


def test_the_asset_of_an_applications_snapshots_is_none_of_its_stores_and_airflow_leaves_its_uri_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asset = snapshot_asset("Orders.v2")
    assert (asset.name, asset.uri) == ("statecore://Orders.v2/", "statecore://Orders.v2/")
    assert asset.uri == store_uri("Orders.v2", "")
    assert snapshot_asset("a/b").uri != store_uri("a", "b")
