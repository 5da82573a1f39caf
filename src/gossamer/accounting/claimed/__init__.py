"""What each paper's own formula says, with its reference and, as flags, the conditions it violates.

Nothing here is a guarantee: `proven` is. A file per paper.
"""

from gossamer.accounting.claimed.adad2p import adad2p, adad2p_sigma
from gossamer.accounting.claimed.base import Claim
from gossamer.accounting.claimed.dp_consensus import rdp_noise_multiplier, rdp_sampled_gaussian
from gossamer.accounting.claimed.dp_dkm import (
    KM_FAMILIES,
    KM_FLAGS,
    km,
    km_composition,
    km_laplace,
    km_noise,
    km_sensitivity,
    km_truncated_gaussian,
    km_truncated_generalised,
    km_truncated_laplace,
)
from gossamer.accounting.claimed.dyn_d2p import (
    EQ10_LARGEST_MU,
    clt_mu,
    dyn_d2p,
    general_scale,
    initial_budget,
    schedule,
    uniform_budget,
)
from gossamer.accounting.claimed.without_replacement import (
    classical_gaussian_sigma,
    lemma4_sensitivity,
    without_replacement,
)
from gossamer.accounting.gaussian import (  # nobody's claim, but used beside them
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
)

__all__ = [
    "EQ10_LARGEST_MU",
    "KM_FAMILIES",
    "KM_FLAGS",
    "Claim",
    "adad2p",
    "adad2p_sigma",
    "classical_gaussian_sigma",
    "clt_mu",
    "dyn_d2p",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "general_scale",
    "initial_budget",
    "km",
    "km_composition",
    "km_laplace",
    "km_noise",
    "km_sensitivity",
    "km_truncated_gaussian",
    "km_truncated_generalised",
    "km_truncated_laplace",
    "lemma4_sensitivity",
    "rdp_noise_multiplier",
    "rdp_sampled_gaussian",
    "schedule",
    "uniform_budget",
    "without_replacement",
]
