"""Nonexpansive operators T whose fixed points solve min f + r, and the proximal maps they are made of."""
