"""What is known of a run without reading a record: enough to say what it would cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from gossamer.algorithms.base import Algorithm
from gossamer.config.schema import RunConfig
from gossamer.data.dataset import Dataset
from gossamer.kernels.stack import ParameterStack
from gossamer.methods.base import Method
from gossamer.methods.objective import per_sample_loss
from gossamer.models.measures import Measure, measures_of
from gossamer.models.tasks import Task
from gossamer.planning.pool import Pool
from gossamer.planning.privacy import PrivacyPlan
from gossamer.topology.schedule import Topology


@dataclass(frozen=True)
class Outline:
    config: RunConfig  # what runs
    asked: RunConfig  # what was asked for; a baseline runs something else
    method: Method
    algorithm: Algorithm
    topology: Topology
    module: nn.Module
    stack: ParameterStack
    plan: PrivacyPlan
    classes: int | None
    task: Task  # what is predicted
    dataset: Dataset | None  # loaded only where the outline needs it
    pool: Pool | None  # of the central baseline
    forced: bool = False  # whether or not this machine has the means
    own_module: bool = False  # did the user bring the module along, in place of the configuration's?

    @property
    def loss(self) -> Any:
        return per_sample_loss(self.classes, self.config)

    @property
    def measures(self) -> list[Measure]:
        """What is measured on the hold-out, the first being what the run is read by."""
        return measures_of(self.config.evaluation.measures, self.task)

    @property
    def seeded(self) -> bool:
        """Is the noise one that everyone can draw, and no privacy?"""
        return self.config.privacy.noise.source == "seeded"

    @property
    def size(self) -> str:
        """How many parameters there are, and how many of them are trained."""
        every = sum(parameter.numel() for parameter in self.module.parameters())
        own = self.stack.dim
        return f"{own:,} parameters" if own == every else f"{own:,} of {every:,} parameters trained"

    @property
    def bytes_per_round(self) -> float:
        return self.method.bytes_per_round(self.algorithm, self.topology, self.stack.dim)
