"""`python -m gossamer`: what torchrun starts."""

from gossamer.cli import main

main()
