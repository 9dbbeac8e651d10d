"""Kafka's brokers and topics as jlog knows them: settings, errors, metadata, tables, transactions."""
