"""An application's declared stores (``stores.yaml``): model, reader, writer, Kafka and Spark settings."""
