"""Secrets of pairs of nodes: agreed upon in the open (X25519), spread by HKDF, each the key of a noise stream.

Every process makes one key for each of its nodes when it starts, hands out the public halves and forgets the private
ones. Nothing of it is ever written, so a run that goes on after a stop has new secrets: no mask can come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gossamer.accounting.secrets import Edge, Secrets
from gossamer.errors import UserError
from gossamer.kernels.noise import Stream

Join = Callable[
    [list[str]], list[str]
]  # one public key of each hosted node, in hexadecimal → those of all nodes


def pair_streams(nodes: Sequence[int], secrets: Secrets, join: Join, context: str) -> dict[Edge, Stream]:
    """The streams of all pairs of which a hosted node is one; `context` says of which run and which start of it."""
    own = {node: X25519PrivateKey.generate() for node in nodes}
    public = join([key.public_key().public_bytes_raw().hex() for key in own.values()])
    if len(public) != secrets.nodes or len(set(public)) != len(public):
        raise UserError(
            "two nodes state the same public key, or one states none: no secret can be agreed upon."
        )
    here = ((i, j) for i, j in secrets.pairs() if i in own or j in own)
    return {(i, j): _stream(own, public, i, j, context) for i, j in here}


def _stream(own: dict[int, X25519PrivateKey], public: Sequence[str], i: int, j: int, context: str) -> Stream:
    mine, other = (i, j) if i in own else (j, i)
    try:
        shared = own[mine].exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public[other])))
    except ValueError:
        raise UserError(
            f"node {other} states a public key that is none: no secret can be agreed upon."
        ) from None
    # Both public keys go in: what is derived belongs to this pair of keys, in this order, and to nothing else.
    info = f"gossamer masks, version 1: {context} {i} {j} {public[i]} {public[j]}".encode()
    key = HKDF(algorithm=hashes.SHA256(), length=16, salt=None, info=info).derive(shared)
    return Stream(key, is_seeded=False)
