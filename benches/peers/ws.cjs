// Sends each line of its input to all its clients, as the documentation of ws (npm) shows it.

const { createInterface } = require("node:readline");
const { WebSocket, WebSocketServer } = require("ws");

const server = new WebSocketServer({ host: "127.0.0.1", port: 0, backlog: 4096, perMessageDeflate: false }, () =>
  console.log(`127.0.0.1:${server.address().port}`),
);

createInterface({ input: process.stdin })
  .on("line", (line) => {
    for (const client of server.clients) {
      if (client.readyState === WebSocket.OPEN) client.send(line, { binary: false });
    }
  })
  .on("close", () => process.exit());
