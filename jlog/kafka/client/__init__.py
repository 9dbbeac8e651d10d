"""The client of Kafka: settings, errors, metadata, tables, transactions."""
