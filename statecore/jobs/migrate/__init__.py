"""Migration of a state directory to another release of Kafka Streams, as a job."""
