"""Fine-tune MiniLM, a text encoder with public weights, by LoRA on texts of four nodes.

The texts here are made up: complaints and thanks. Adapters on the attention of the last layer and a new head are
trained, noised and sent; the 22.7 million public weights are not. The weights are fetched once (83 MB). The five layers
below the adapters are a step of the data, computed once for each text and not again in every round.
docs/fine-tuning.md is the page about it.
"""

import numpy as np

import gossamer

NODES, EACH, TEST, LENGTH = 4, 60, 80, 16
GOOD = ["thank you", "works well", "very helpful", "quick and friendly", "we are happy with it", "great support"]
BAD = ["does not work", "arrived broken", "nobody answers", "far too slow", "we want our money back", "bad support"]
THINGS = ["the printer", "your service", "the new update", "the clinic", "my order", "the app", "the doctor"]


def texts(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count)
    said = [f"{random.choice(THINGS)}: {random.choice(GOOD if label else BAD)}" for label in labels]
    return said, labels


def main(rounds: int = 20) -> gossamer.Outcome:
    said, labels = texts(NODES * EACH, seed=0)
    tokens = gossamer.tokens(said, length=LENGTH)
    public, truth = texts(TEST, seed=1)
    nodes = [(tokens[i::NODES], labels[i::NODES]) for i in range(NODES)]
    config = {
        "rounds": rounds,
        "data": {"transform": [{"kind": "minilm", "trunk": 5}]},
        "model": {"kind": "minilm", "trunk": 5},
        "lora": {"rank": 4, "targets": ["layers.5.query", "layers.5.value"], "train": ["head"]},
        "topology": {"kind": "complete"},
        "algorithm": {"kind": "dyn-d2p", "lr": 1.0},
        "privacy": {"epsilon": 8.0, "delta": 1e-3, "sampling": {"kind": "poisson", "rate": 0.2}},
    }
    data = gossamer.Data(nodes, classes=2, count=EACH, test=(gossamer.tokens(public, length=LENGTH), truth))
    print(gossamer.plan(config, data=data).size)
    return gossamer.run(config, data=data)


if __name__ == "__main__":
    r = main().result
    print(f"accuracy {r['accuracy_mean']:.1%}, worst node {r['accuracy_min']:.1%}")
    print(f"proven ε = {r['epsilon_proven']:.2f} at δ = {r['delta']:g}, {r['adjacency']}, {r['unit']}")
