"""Benchmarks: side by side with real Kafka Streams, in one run."""
