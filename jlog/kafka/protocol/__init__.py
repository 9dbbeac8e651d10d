"""Kafka's protocol, spoken by jlog itself where whole batches are moved."""
