"""The provider for its own tests."""

from tests.oidc.running import provider, provider_process

__all__ = ["provider", "provider_process"]
