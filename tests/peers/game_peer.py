"""The Python client `rustplus`, a third party, against the simulated game server.

Usage: game_peer.py HOST PORT PLAYER_ID PLAYER_TOKEN
"""

import asyncio
import sys
import time

from rustplus import ChatEvent, EntityEvent, RustSocket, ServerDetails
from rustplus.remote.proxy import ProxyValueGrabber
from rustplus.structs import RustError

# Otherwise connect() looks a version number up on the internet.
ProxyValueGrabber.VALUE = 1
ProxyValueGrabber.LAST_FETCHED = time.time() + 10**9

SWITCH, ALARM, CUPBOARD = 4242, 4244, 4246


class Mismatch(Exception):
    pass


def check(condition, what):
    # Not `assert`: that vanishes under -O.
    if not condition:
        raise Mismatch(what)


def good(answer):
    if isinstance(answer, RustError):
        raise Mismatch(f"an answer, not {answer.reason}")
    return answer


async def within(seconds, queue, wanted, what):
    try:
        async with asyncio.timeout(seconds):
            while not wanted(value := await queue.get()):
                pass
            return value
    except TimeoutError:
        raise Mismatch(f"{what} within {seconds} s") from None


async def main(host, port, player, token):
    details = ServerDetails(host, port, player, token)
    socket = RustSocket(details)
    entities, lines = asyncio.Queue(), asyncio.Queue()

    @EntityEvent(details, SWITCH)
    async def on_entity(event):
        await entities.put(event.value)

    @ChatEvent(details)
    async def on_chat(event):
        await lines.put(event.message.message)

    check(await socket.connect(), "a connection")
    info = good(await socket.get_info())
    check(info.size == 4000 and info.max_players >= info.players, f"info: {info}")
    now = good(await socket.get_time())
    check(now.day_length == 60.0, f"time: {now}")
    team = good(await socket.get_team_info())
    check(team.leader_steam_id == player and len(team.members) == 4, f"team: {team}")
    markers = good(await socket.get_markers())
    check(sum(marker.type == 3 for marker in markers) >= 40, "vending machines among the markers")
    island = good(await socket.get_map())
    check(island.width == island.height > 500, f"a map picture: {island}")

    line = f"hello from a peer {time.time()}"
    await socket.send_team_message(line)
    await within(10, lines, lambda received: received == line, "chat line")
    chat = good(await socket.get_team_chat())
    check(any(message.message == line for message in chat), "the line in the history")

    switch = good(await socket.get_entity_info(SWITCH))
    wanted = not switch.value
    await socket.set_entity_value(SWITCH, wanted)
    await within(10, entities, lambda value: value == wanted, "entity event")
    # False travels as an absent field.
    await socket.set_entity_value(SWITCH, not wanted)
    await within(10, entities, lambda value: value != wanted, "second entity event")
    cupboard = good(await socket.get_entity_info(CUPBOARD))
    check(cupboard.has_protection and cupboard.capacity == 29, f"a tool cupboard: {cupboard}")
    missing = await socket.get_entity_info(1)
    check(isinstance(missing, RustError) and missing.reason == "not_found", f"not_found: {missing!r}")

    camera = await socket.get_camera_manager("CAM1")
    check(not isinstance(camera, RustError), f"a camera: {camera!r}")
    for _ in range(100):
        if len(camera._last_packets) >= 6:
            break
        await asyncio.sleep(0.1)
    picture = await camera.get_frame()
    check(picture is not None and picture.size == (960, 540), f"a picture of 6 x 160 x 90: {picture}")
    colours = picture.convert("RGB").getcolors(maxcolors=1 << 24)
    check(len(colours) > 20, f"the picture is blank: {len(colours)} colours")
    await camera.exit_camera()
    await socket.disconnect()

    stranger = RustSocket(ServerDetails(host, port, player, token + 1))
    await stranger.connect()
    refused = await stranger.get_info()
    check(isinstance(refused, RustError) and refused.reason == "not_found", f"a bad token: {refused!r}")
    await stranger.disconnect()
    print("game_peer.py: ok")


if __name__ == "__main__":
    HOST, PORT, PLAYER, TOKEN = sys.argv[1:5]
    try:
        asyncio.run(asyncio.wait_for(main(HOST, int(PORT), int(PLAYER), int(TOKEN)), 60))
    except (Mismatch, TimeoutError) as missing:
        sys.exit(f"game_peer.py: FAILED: wanted {missing or 'an end within 60 s'}")
