"""Fetch: places stores of a repository snapshot into a state directory, without Spark.

Enter by ``run.run_fetch``; ``job`` carries what its phases share. Brokers are optional: with them ``topic_check`` says
whether Kafka Streams can continue the stores. It stands on ``repository``, ``jobs/pipeline`` and ``statedir``.
"""
