"""Plans of jobs: offsets and stores, frozen before anything is read."""
