"""The commands of `jlogtool`, a file each."""
