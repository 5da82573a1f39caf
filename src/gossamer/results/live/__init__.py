"""`gossamer watch`: one page about a run that goes on, or has ended, served to this machine alone."""
