"""What a learner serves of its weights: `GET /weights/current`, and the artifacts that manifests name."""

from aiohttp import web

from overwatch_rl.rollouts.authorisation import Authorisation


def weights_routes(artifacts: str, authorisation: Authorisation) -> list[web.RouteDef]:
    """Routes for the application of a learner; manifests have their version as entity tag."""
    raise NotImplementedError
