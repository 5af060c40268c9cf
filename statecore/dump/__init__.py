"""The rows of a store, decoded, as Arrow batches and as files."""
