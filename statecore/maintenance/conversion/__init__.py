"""A task's directory, converted between the layouts of releases of Kafka Streams: decided, done, looked at again."""
