"""The compiled core: each module here is a Cython source in pyx/. What users may rely on is in `jlog` itself."""
