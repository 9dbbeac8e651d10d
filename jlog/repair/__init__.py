"""Making a damaged journal sound: what can still be read, the segments to be, and the steps that make them."""
