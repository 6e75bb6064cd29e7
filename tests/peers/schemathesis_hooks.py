"""Who calls, and which ids exist: without them almost every answer would be 401, 404 or 429."""

import html
import os
import re
import sys
import zlib

import requests
import schemathesis

TEAM = ["76561198000000001", "76561198000000002", "76561198000000003", "76561198000000004"]
SIGNED_IN = os.environ["CALLER"] == "admin"
API = next(argument.removesuffix("/openapi.json") for argument in sys.argv if argument.endswith("/openapi.json"))


def sign_in(person):
    """The cookie of a session: a click at the simulated identity provider."""
    browser = requests.Session()
    page = browser.get(f"{API}/auth/platform")
    fields = {html.unescape(name): html.unescape(value)
              for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', page.text)}
    choice = browser.post(page.url.split("/openid/")[0] + "/openid/choose", data={**fields, "person": person},
                          allow_redirects=False)
    browser.get(choice.headers["location"], allow_redirects=False)
    return browser.cookies["rp_sess"]


def world(person):
    """A user with a server and a device, and the ids of both."""
    cookie = sign_in(person)

    def post(path, body):
        answer = requests.post(API + path, json=body, cookies={"rp_sess": cookie})
        assert answer.ok, answer.text
        return answer.json()

    server = post("/paired-servers", {"address": "127.0.0.1", "port": 28082, "playerId": person, "playerToken": 1,
                                      "name": "Schema"})["id"]
    post(f"/paired-servers/{server}/devices", {"entityId": "1234567", "kind": "switch"})
    note = post(f"/intel/{server}/map-notes", {"x": 1, "y": 1, "category": "raid"})["id"]
    return {"cookie": cookie, "server": server, "device": "1234567", "note": note}


WORLDS = [world(person) for person in TEAM] if SIGNED_IN else []


def of(operation):
    """The user who calls this operation: always the same, so that what one operation made is there for its next."""
    return WORLDS[zlib.crc32(f"{operation.method} {operation.path}".encode()) % len(WORLDS)]


if SIGNED_IN:

    @schemathesis.auth()
    class Session:
        """The session of the user of an operation."""

        def get(self, case, context):
            return of(case.operation)["cookie"]

        def set(self, case, data, context):
            # A route that ends sessions is called without.
            if not case.operation.path.endswith(("/auth/signout", "/sign-out")):
                case.cookies = {**(case.cookies or {}), "rp_sess": of(case.operation)["cookie"]}

    @schemathesis.hook
    def map_path_parameters(context, path_parameters):
        """Half of all requests are about what exists; nobody deletes a server, as everything else is about it."""
        path, method = context.operation.path, context.operation.method
        if not path_parameters or method == "delete" and path.endswith(("servers/{id}", "/paired-servers")):
            return path_parameters
        mine = of(context.operation)
        known = dict(path_parameters)
        if path.startswith("/paired-servers/{id}"):
            known["id"] = mine["server"]
        if "serverId" in known:
            known["serverId"] = mine["server"]
        if path.endswith("map-notes/{id}"):
            known["id"] = mine["note"]
        if "deviceId" in known:
            known["deviceId"] = mine["device"]
        return known
