"""The push receiver of the Python client `rustplus`, a third party, against the simulated push service.

Usage: push_peer.py HOST PORT ANDROID_ID SECURITY_TOKEN CA_FILE
"""

import json
import os
import queue
import sys

import push_receiver.push_receiver as receiver
from rustplus import FCMListener

HOST, PORT, ANDROID_ID, SECURITY_TOKEN, CA_FILE = sys.argv[1:6]

# The client's address is a constant. It checks the certificate and the host name in it.
plain_connect, plain_context = receiver.socket.create_connection, receiver.ssl.create_default_context
receiver.socket.create_connection = lambda address, *args, **kwargs: plain_connect(
    (HOST, int(PORT)) if address[0] == "mtalk.google.com" else address, *args, **kwargs
)
receiver.ssl.create_default_context = lambda *args, **kwargs: plain_context(cafile=CA_FILE)

received = queue.Queue()


class Peer(FCMListener):
    def on_notification(self, obj, notification, data_message):
        received.put((notification, data_message.persistent_id))


def main():
    gcm = {"androidId": ANDROID_ID, "securityToken": SECURITY_TOKEN}
    Peer({"fcm_credentials": {"gcm": gcm, "fcm": {"token": "unused"}}}).start(daemon=True)
    kinds = []
    for _ in range(2):
        notification, persistent_id = received.get(timeout=30)
        body = json.loads(notification["body"])
        if notification["channelId"] != "pairing" or not persistent_id or not int(body["playerToken"]):
            return f"a pairing, not {notification}"
        kinds.append(body["type"])
    return None if kinds == ["server", "entity"] else f"a server and a device, not {kinds}"


try:
    wanted = main()
except queue.Empty:
    wanted = "a pairing within 30 s"
print("push_peer.py: ok" if wanted is None else f"push_peer.py: FAILED: wanted {wanted}", flush=True)
# Its threads never end by themselves.
os._exit(0 if wanted is None else 1)
