"""Who calls, and what exists: without them almost every answer would be 401, 404 or 429, or say that a value is unknown."""

import html
import itertools
import os
import re
import struct
import sys
import zlib

import requests
import schemathesis
from hypothesis import strategies

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

GUILD = "120000000000000001"
# Items of the catalogue.
ITEM, SHORTNAME = "317398316", "metal.refined"
SCRAP = "-932201673"


def png(colour):
    """An image of one pixel, which has this colour of 24 bits."""
    def chunk(kind, data):
        return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))

    size = struct.pack("!IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00" + colour.to_bytes(3, "big"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


COLOURS = itertools.count(1)


def icon():
    """The URL of an icon that nothing else uses: with its last use it would be gone. None where limits stand before."""
    answer = requests.post(f"{API}/admin/items/upload-icon", files={"file": ("icon.png", png(next(COLOURS)), "image/png")},
                           cookies={"rp_sess": WORLDS[0]["cookie"]})
    return answer.json()["url"] if answer.ok else None


if SIGNED_IN:
    row = requests.post(f"{API}/admin/conveyor-map", json={"itemId": ITEM}, cookies={"rp_sess": WORLDS[0]["cookie"]})
    assert row.json()["shortname"] == SHORTNAME, row.text

# Uploads are images.
schemathesis.openapi.format("binary", strategies.just(png(0)))


def of(operation):
    """The user who calls this operation: one for all operations on a collection, so that what one made is there for the
    next."""
    collection = re.sub(r"^/(paired-servers/\{id\}|intel/\{serverId\})/", "/server/", operation.path).split("/{")[0]
    return WORLDS[zlib.crc32(collection.encode()) % len(WORLDS)]


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


def whole(value):
    """1.0 is an integer for JSON Schema, and none for programs that read JSON into integers."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [whole(item) for item in value]
    return {name: whole(item) for name, item in value.items()} if isinstance(value, dict) else value


# Values that exist, which a schema cannot say, by operation and field; one that is absent or null stays.
# A function makes a new one each time.
KNOWN = {
    "POST /admin/beta-testers": {"expiresAt": "2099-01-01T00:00:00Z"},
    "POST /admin/chat/register-commands": {"groupId": GUILD},
    "POST /admin/conveyor-map": {"itemId": ITEM},
    "POST /admin/conveyor-map/bulk-category": {"shortnames": [SHORTNAME]},
    "PUT /admin/items/{id}": {"id": ITEM, "shortname": SHORTNAME, "iconUrl": icon},
    # Never the row that is there.
    "DELETE /admin/conveyor-map/{shortname}": {"shortname": "sulfur"},
    "POST /intel/{serverId}/shops": {"vendorId": "1_2", "itemId": ITEM, "currencyId": SCRAP},
    "PATCH /intel/{serverId}/shops/{id}": {"currencyId": SCRAP},
    # A player who is not the caller.
    "POST /paired-servers/{id}/guests": {"platformId": "76561198000000005"},
    "POST /me/tokens": {"expiresAt": "2099-01-01T00:00:00Z"},
    "PATCH /me": {"locale": "de-CH", "timeZone": "Europe/Berlin"},
}
# A cursor of the payment provider is an id that the provider has given.
PROVIDER_PAGES = {"GET /admin/refunds", "GET /admin/users/{id}/charges"}


if SIGNED_IN:

    @schemathesis.hook
    def before_call(context, case, kwargs):
        """What is valid by its schema names what is there. What is not valid stays as it is."""
        if case.meta is None or not case.meta.generation.mode.is_positive:
            return
        if isinstance(case.body, dict) and case.media_type == "application/json":
            case.body = whole(case.body)
        for name in ("if-match", "if-none-match"):
            # Where schemathesis finds no value that matches the pattern.
            if case.headers.get(name) == "":
                del case.headers[name]
        if case.operation.label in PROVIDER_PAGES and case.query:
            case.query.pop("before", None)
        for name, known in KNOWN.get(case.operation.label, {}).items():
            for fields in (case.body, case.query, case.path_parameters):
                if isinstance(fields, dict) and fields.get(name) is not None:
                    fields[name] = known() if callable(known) else known
