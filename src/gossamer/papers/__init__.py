"""The papers' tables as data: what is printed, where, and which run stands for each cell."""
