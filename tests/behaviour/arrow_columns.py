"""The columns of records in Arrow, as the contract has them."""

import pyarrow

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
SCHEMA = pyarrow.schema(
    {
        "sequence": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
        "key": pyarrow.binary(),
        "value": pyarrow.binary(),
        "headers": HEADERS,
    }
)
