// Sends each line of its input to all its clients, by Bun's own way of sending to many.

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  fetch: (request, server) => (server.upgrade(request) ? undefined : new Response(null, { status: 426 })),
  websocket: {
    open: (socket) => socket.subscribe("all"),
    message: () => {},
  },
});
console.log(`127.0.0.1:${server.port}`);

for await (const line of console) server.publish("all", line);
process.exit();
