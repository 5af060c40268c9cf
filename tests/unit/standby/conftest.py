"""Repositories to start standby tasks from."""

from tests.unit.jobs.conftest import own_shop, published, shop, state_dir

__all__ = ["own_shop", "published", "shop", "state_dir"]
