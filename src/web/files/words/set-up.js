// Texts of the set-up.

export const SET_UP = {
  title: "Set-up",
  done: "Everything is set up: you would be woken.",
  /** @param {number} count */
  left: (count) => (count === 1 ? "One step is left." : `${count} steps are left.`),
  /** @param {number} count */
  showDone: (count) => `${count} done`,
  /** @type {Record<string, string[]>} */
  steps: {
    signedIn: ["Signed in", ""],
    device: [
      "You have signed in with the game",
      "Then the service receives your pairings and alarms. A helper program on your computer can do it instead.",
    ],
    credential: ["The push credential is accepted", "It comes with that sign-in, or from the helper program."],
    server: ["A game server is paired", "Open the game menu on the server, then Rust+, and press Pair."],
    alarm: ["A smart alarm is paired", "Hold the wire tool on a smart alarm in the game and press Pair."],
    link: ["The live link to the game server is up", ""],
    push: ["The game's pushes arrive", ""],
    sound: ["This page may play a sound", "Press the button once, in each tab that is to ring."],
    notifications: [
      "This browser shows notifications",
      "They show a raid while this page is hidden. Also while it is closed: Alarms on your phone, under More.",
    ],
    channel: [
      "A second way besides this page wakes you",
      "This page can be closed. Add your phone or this browser under More, Alarms on your phone, and press Test.",
    ],
    drill: ["A drill was heard", "It rings like a raid, and nothing happens in the game."],
  },
  /** After the name of a step, for those who hear it. */
  isDone: ", done",
  isLeft: ", to do",
  game: "Sign in with the game",
  getCode: "Use a helper program",
  newCode: "Get a new code",
  /** @param {string} left */
  code: (left) => `Type this code into the helper program. It works for ${left}.`,
  copyCode: "Copy the code",
  codePicture: "QR code of this code",
  codeOver: "This code has expired.",
  /** @param {string | null} label @param {string} network */
  confirm: (label, network) => `${label || "A device"} in the network ${network} has typed your code. Is it yours?`,
  yes: "Yes, pair it",
  turnOn: "Turn on",
  allow: "Allow",
  denied: "You refused notifications; the browser's settings of this page change that.",
  drill: "Start a drill",
  byHand: "Or pair by hand",
  welcome: "Let us set this up",
  welcomeWhy: "It takes some minutes, once. Then your base is watched, also while your computer is off.",
  address: "Address of the game server",
  port: "Rust+ port",
  playerId: "Your SteamID64",
  playerToken: "Player token of the pairing",
  pair: "Pair",
};
