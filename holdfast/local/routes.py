"""The model of an in-process driver: the one that it is given, that of the environment, and routes beside either."""

from __future__ import annotations

import os

from holdfast.core.agent.model import Model
from holdfast.models.model_choice import EnvironmentModel
from holdfast.models.route_file import ModelRoutes, routes_from
from holdfast.models.routed_model import RoutedModel


def driver_model(model: Model | None, models: ModelRoutes | None) -> tuple[Model, bool]:
    """Return the model of a driver that is given these, and whether the driver closes it.

    A given `model` without routes is all there is: no file is looked for. Raises InvalidInput for wrong routes.
    """
    if model is None:
        return RoutedModel(EnvironmentModel(), routes_from(models, os.environ)), True
    if models is None:
        return model, False
    return RoutedModel(model, routes_from(models, os.environ), owned=False), True
