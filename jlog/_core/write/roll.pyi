# Nothing of it is seen from Python: it is what the other modules of the core do under the append lock.
