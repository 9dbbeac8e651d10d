# fish reads this file at the first TAB behind `jlogtool`.
jlogtool completion fish | source
