"""Made-up records of patients: python records.py FILE ROWS SEED."""

import random
import sys


def main(path: str, rows: int, seed: int) -> None:
    pick = random.Random(seed)
    with open(path, "w") as file:
        file.write("age,days,readmitted\n")
        for _ in range(rows):
            age, days = pick.uniform(-1, 1), pick.uniform(-1, 1)  # scaled, as a model likes them
            again = int(age + days + pick.gauss(0, 0.3) > 0)
            file.write(f"{age:.3f},{days:.3f},{again}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
