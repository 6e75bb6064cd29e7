// Team chat of the demo, asked by rustplus.js (npm): one connection is a teammate, another one a foreign bot with the same
// prefix. Both hear all lines, as every member does; those of the demo user are the service's.
// Usage: node chat_peer.js DEMO_JSON; the package is found through NODE_PATH. Prints each command with its answer.
'use strict';
const assert = require('node:assert/strict');
const fs = require('node:fs');
const RustPlus = require('@liamcottle/rustplus.js');

/** The game's longest line that every server takes, in UTF-16 units, as JavaScript counts. */
const LONGEST = 128;
/** A player gives one command in two seconds; the bot keeps to it, so that it is heard. */
const COMMAND_PAUSE = 2_100;
/** Between two commands of the teammate, who may give ten in a minute. */
const APART = 6_200;
/** An answer that waits is said after two seconds; nothing comes later than this. */
const QUIET = 6_000;
/** Answers within 20 seconds that end a loop: the one after six. Arrivals differ a little from sendings. */
const LOOP = { answers: 7, within: 18_000 };

const duration = String.raw`\d+[smhd]`;
const QUESTIONS = [
  ['!pop', /^\d+\/\d+ players/],
  ['!TIME', /^\d\d:\d\d(, (night|day) in |$)/],
  ['!wipe', /^wiped .+ ago$/],
  ['!cargo', /cargo/],
  ['!heli', /heli/],
  ['!alive', new RegExp(`^\\S+ ${duration}`)],
  ['!afk', /AFK/],
  ['!team', /^online \d\/4: /],
  ['!upkeep', new RegExp(`${duration}|DECAYING`)],
  ['!decay armored wall 450', /^armored wall 450\/2000: 2h 42m$/],
  ['!timer 90m heli', /^timer \d+: heli in 1h 30m$/],
  ['!timers', /heli/],
  ['!help', /^commands after ! pop time wipe/],
];

const sleep = millis => new Promise(resolve => setTimeout(resolve, millis));

// SteamIDs exceed the numbers that JSON.parse keeps.
const text = fs.readFileSync(process.argv[2], 'utf8');
const teammate = JSON.parse(text.replace(/("player":\s*)(\d+)/, '$1"$2"')).teammate;
const next = (player, places) => (BigInt(player) + BigInt(places)).toString();
/** The service speaks as the demo user, the first of the team; the bot is the third. */
const [SERVICE, MATE, BOT] = [-1, 0, 1].map(places => next(teammate.player, places));

class Member {
  constructor(player) {
    this.player = player;
    this.peer = new RustPlus(teammate.host, teammate.port, player, teammate.token);
  }

  async join() {
    const opened = new Promise((resolve, reject) => { this.peer.on('connected', resolve); this.peer.on('error', reject); });
    this.peer.connect();
    await opened;
    // The game sends its chat to those who have asked for something.
    await this.peer.sendRequestAsync({ getTeamChat: {} }, 15_000);
    return this;
  }

  /** Calls this with each line of the team from now on; gives what ends that. */
  onLine(heard) {
    const listener = ({ broadcast }) => { if (broadcast?.teamMessage) heard(broadcast.teamMessage.message); };
    this.peer.on('message', listener);
    return () => this.peer.off('message', listener);
  }

  async say(line) {
    await this.peer.sendRequestAsync({ sendTeamMessage: { message: line } }, 15_000);
  }
}

/** Lines that the service has said, in order, and when. */
const answers = [];
let wake = () => {};

function take({ steamId, message }) {
  if (steamId.toString() !== SERVICE) return;
  assert.ok(message.length <= LONGEST, `too long: ${message}`);
  assert.match(message, /^[\p{L}\p{N}\p{Extended_Pictographic}]/u, `may be a command: ${message}`);
  answers.push({ text: message, at: Date.now() });
  wake();
}

/** The number of answers once there are more than `before`, or the time is up. */
async function moreThan(before, millis) {
  const end = Date.now() + millis;
  while (answers.length <= before && Date.now() < end) {
    await Promise.race([new Promise(resolve => { wake = resolve; }), sleep(Math.max(1, end - Date.now()))]);
  }
  return answers.length;
}

async function ask(mate, line, wanted) {
  const before = answers.length;
  await mate.say(line);
  assert.ok(await moreThan(before, 15_000) > before, `no answer to ${line}`);
  await sleep(APART);
  const said = answers.slice(before).map(answer => answer.text);
  assert.equal(said.length, 1, `${line} has one answer: ${said.join(' / ')}`);
  assert.match(said[0], wanted, line);
  console.log(`chat_peer.js: ${line.padEnd(24)} ${said[0]}`);
}

/** Like rustplusplus, and worse: it answers each command with its mark, and repeats our answers with a prefix in front. */
function answersBeside(bot) {
  let answered = 0;
  const refused = [];
  const stop = bot.onLine(({ steamId, message }) => {
    const isOurs = steamId.toString() === SERVICE;
    const isAsked = steamId.toString() === MATE && message.startsWith('!');
    if (!isOurs && !isAsked) return;
    answered += 1;
    const line = isAsked ? `rustplusplus | ${message} is 214/250` : `! ${message}`;
    bot.say(line).catch(error => refused.push(error));
  });
  return { count: () => answered, refused, stop };
}

async function beside(mate, bot) {
  const other = answersBeside(bot);
  for (const [line, wanted] of QUESTIONS) await ask(mate, line, wanted);
  other.stop();
  assert.deepEqual(other.refused, []);
  assert.equal(other.count(), 2 * QUESTIONS.length, 'the bot heard each command and each answer');
}

/** A bot that makes a command of each of our answers: it gets a few, then silence for a minute, also for others. */
async function inALoop(mate, bot) {
  const before = answers.length;
  let heard = before;
  for (let turn = 0; turn < 3 * LOOP.answers; turn += 1) {
    const pause = sleep(COMMAND_PAUSE);
    await bot.say(`!decay stone wall ${100 + turn}`);
    const now = await moreThan(heard, QUIET);
    if (now === heard) break;
    heard = now;
    await pause;
  }
  const looped = answers.slice(before);
  assert.ok(looped.every(({ text }) => /^stone wall 1\d\d\/500: /.test(text)), looped.map(({ text }) => text).join(' / '));
  assert.ok(looped.length > 0 && looped.length <= LOOP.answers, `${looped.length} answers to a bot`);
  await mate.say('!wipe');
  assert.equal(await moreThan(heard, QUIET), heard, 'a question in the silence is never answered');
  console.log(`chat_peer.js: a loop ended after ${looped.length} answers`);
}

async function main() {
  const [mate, bot] = await Promise.all([new Member(MATE).join(), new Member(BOT).join()]);
  mate.onLine(take);
  // The link of the demo user may still come up.
  for (let tries = 0; answers.length === 0; tries += 1) {
    assert.ok(tries < 10, 'the service answers nothing');
    await mate.say('!unmute');
    await moreThan(0, 6_000);
  }
  await sleep(APART);
  await beside(mate, bot);
  await inALoop(mate, bot);
  for (const { at } of answers) {
    const within = answers.filter(other => other.at >= at && other.at < at + LOOP.within).length;
    assert.ok(within <= LOOP.answers, `${within} lines in ${LOOP.within / 1000} s`);
  }
  mate.peer.disconnect();
  bot.peer.disconnect();
}

main().then(() => { console.log('chat_peer.js: ok'); process.exit(0); },
            error => { console.error('chat_peer.js: FAILED', error); process.exit(1); });
