"""A paper's table that runs in seconds."""

TINY = '''
title = "A table made for this test"
paper = "Nobody: Nothing"
recipe = "quickstart"

[set]
nodes = 4
rounds = 8

[[grid]]
source = "Table 7"
rows = "method"
columns = "noise"
cells = """
          | σ = 1    | no noise
Dyn-D²P   | 81.5 ± 2 | -
SGP       | -        | ?
"""

[scale.full]
seeds = 3

[scale.book]
seeds = 2
cut = ["nothing else"]

[scale.small]
seeds = 1

[book]
verdict = "in part"
reason = "It was made so. Nobody printed more."
x = "noise"
curve = "method"

[[finding]]
says = "Dyn-D²P has 81.5"
near = 0.001

[[finding]]
says = "Dyn-D²P has between 1 and 162"
near = 80.5

[[rule]]
where = { method = "Dyn-D²P" }
mode = "paper"
set = { privacy.noise.multiplier = 2.0 }
unset = ["privacy.epsilon"]

[[rule]]
where = { method = "SGP" }
set = { algorithm.kind = "sgp" }
only = "paper"
'''
