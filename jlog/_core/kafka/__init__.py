"""librdkafka, called without Python objects for single records."""
