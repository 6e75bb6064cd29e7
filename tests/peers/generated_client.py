"""The package that openapi-python-client makes: every module imports, and the enums have their words."""

import importlib
import pkgutil

import companion_client
from companion_client import models

modules = [importlib.import_module(found.name)
           for found in pkgutil.walk_packages(companion_client.__path__, "companion_client.")]
for name, words in {
    "Tier": {"SCOUT", "OPERATOR", "OVERLORD"},
    "WatchState": {"ok", "changed", "undercut", "missing", "returned"},
    "FunnelStage": {"no-subscription", "no-credentials", "no-paired-server", "ready", "guest-ready"},
    "Role": {"owner", "guest"},
}.items():
    known = {member.value for member in getattr(models, name)}
    assert known == words, (name, known)
assert len(modules) > 200, len(modules)
print(f"openapi-python-client: ok, {len(modules)} modules")
