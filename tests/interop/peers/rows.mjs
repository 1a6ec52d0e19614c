// The rows of the matrix in JavaScript: what rows.py says, for a caller on either version of the SDK.
//
// A caller has: card(), send(parts, ids), stream(parts), subscribe(id), get(id), cancel(id), nameOf(error), and
// setWebhook(taskId, id, url, token), getWebhook(taskId, id), listWebhooks(taskId), deleteWebhook(taskId, id).

import { randomUUID } from 'node:crypto';

import { Hook } from './hook.mjs';
import { sorted } from './puppet.mjs';

const ROW_LIMIT_MS = 20_000;
const REST_LIMIT_MS = 10_000;
const POLL_MS = 50;
const RESTING = new Set(['COMPLETED', 'FAILED', 'CANCELED', 'REJECTED', 'INPUT_REQUIRED', 'AUTH_REQUIRED']);

const TEXT =
  'fox 🦊, family 👩‍👩‍👧‍👦, flag 🇺🇳, 漢字 かな 한글, العربية עברית, e\u0301 é, \u202eoverride\u202c, ' +
  'tab\t lf\n crlf\r\n, \x01\x1f\x7f\x85, \u2028\u2029, \ufeff, \u{1f9d1}\u200d\u{1f680} \\u0041 "\'</script>&amp;';
// The literal is 2^53 + 1; the language has no such number, and rounds it here already.
const BIG = 9007199254740993;
const TOKEN = 'token of the matrix';
const FILES_SENT = [
  { raw: 'AAEC/f7/', name: 'données №1.bin', type: 'application/x-thing' },
  { url: 'https://files.example/in?x=1&y=%20#part', name: 'in.pdf', type: 'application/pdf' },
];
const DATA = {
  null: null,
  true: true,
  number: 7,
  half: 0.5,
  empty: {},
  list: [],
  nested: { kind: 'text', type: 'text', snake_case: [1, [2, { camelCase: null }]] },
  ключ: 'значение',
};

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const textOf = (parts) => parts.map((part) => part.text ?? '').join('');
const chunksOf = (events) => events.filter((event) => event.kind === 'artifact').map((event) => textOf(event.parts));
const lastState = (events) => events.findLast((event) => 'state' in event)?.state ?? null;
const idOf = (events) => events.find((event) => 'id' in event).id;

function short(value) {
  const kept = {};
  for (const key of ['kind', 'role', 'state', 'words']) if (key in value) kept[key] = value[key];
  if (value.parts) kept.text = textOf(value.parts);
  if (value.artifacts) {
    kept.artifacts = Object.fromEntries(Object.entries(value.artifacts).map(([name, parts]) => [name, textOf(parts)]));
  }
  return kept;
}

class Rows {
  constructor(caller) {
    this.caller = caller;
  }

  async say(text, more = [], ids = {}) {
    return this.rested(await this.caller.send([{ text }, ...more], ids));
  }

  async rested(answer) {
    const until = Date.now() + REST_LIMIT_MS;
    while (answer.kind === 'task' && !RESTING.has(answer.state)) {
      if (Date.now() > until) throw new Error(`still ${answer.state}`);
      await pause(POLL_MS);
      answer = await this.caller.get(answer.id);
    }
    return answer;
  }

  async errorOf(call) {
    try {
      if (Symbol.asyncIterator in call) {
        const events = [];
        for await (const event of call) events.push(short(event));
        return { error: null, answer: events };
      }
      return { error: null, answer: short(await call) };
    } catch (error) {
      return { error: this.caller.nameOf(error) ?? 'unnamed', as: `${error.constructor.name}: ${error.message}`.slice(0, 300) };
    }
  }

  card() {
    return this.caller.card();
  }

  async message() {
    return short(await this.caller.send([{ text: 'message hello' }]));
  }

  async task() {
    const sent = await this.caller.send([{ text: 'task hello' }]);
    const ended = await this.rested(sent);
    return { ended: short(ended), read: short(await this.caller.get(ended.id)) };
  }

  async blocking() {
    return short(await this.caller.send([{ text: 'task hello' }]));
  }

  async fail() {
    return short(await this.say('fail No paper.'));
  }

  async stream() {
    const key = randomUUID();
    const events = [];
    let releasedAt = null;
    for await (const event of this.caller.stream([{ text: `stream ${key}` }])) {
      events.push(event);
      if (releasedAt === null && event.kind === 'artifact') {
        releasedAt = textOf(event.parts);
        await this.caller.send([{ text: `release ${key}` }]);
      }
    }
    const read = await this.caller.get(idOf(events));
    return {
      'released at': releasedAt,
      chunks: chunksOf(events),
      last: lastState(events),
      read: short(read).artifacts,
    };
  }

  async question() {
    const asked = await this.say('ask');
    const events = [];
    for await (const event of this.caller.stream([{ text: 'ask' }])) events.push(event);
    const answered = await this.say('green 🟢', [], { taskId: asked.id, contextId: asked.context });
    return {
      asked: short(asked),
      answered: short(answered),
      'same task': answered.id === asked.id,
      'same context': answered.context === asked.context,
      streamed: lastState(events),
    };
  }

  async cancel() {
    const events = [];
    let answer = null;
    for await (const event of this.caller.stream([{ text: 'hold' }])) {
      events.push(event);
      if (answer === null && event.words === 'waiting') answer = await this.caller.cancel(event.id);
    }
    const read = await this.caller.get(idOf(events));
    return { answer: answer?.state ?? null, stream: lastState(events), read: read.state };
  }

  async resubscribe() {
    const key = randomUUID();
    const before = [];
    for await (const event of this.caller.stream([{ text: `stream ${key}` }])) {
      before.push(event);
      if (event.kind === 'artifact') break;
    }
    const after = [];
    for await (const event of this.caller.subscribe(before.at(-1).id)) {
      after.push(event);
      if (after.length === 1) await this.caller.send([{ text: `release ${key}` }]);
    }
    return { before: chunksOf(before), after: chunksOf(after), last: lastState(after) };
  }

  async files() {
    const made = await this.say('files');
    const sent = await this.say('describe', FILES_SENT);
    return { 'from the agent': made.artifacts.files, 'at the agent': textOf(sent.artifacts.seen) };
  }

  async unicode() {
    return (await this.say('echo', [{ text: TEXT }])).artifacts;
  }

  async data() {
    return (await this.say('echo', [{ data: DATA }])).artifacts;
  }

  async integers() {
    const answer = await this.say('numbers', [{ data: { big: BIG, negative: -BIG, small: 7 } }]);
    const [came, atAgent] = answer.artifacts.numbers;
    return { 'at the agent': atAgent.text, 'back here': sorted(came.data) };
  }

  async others(taskId, url) {
    try {
      await this.caller.setWebhook(taskId, 'another', url, TOKEN);
      await this.caller.deleteWebhook(taskId, 'another');
      return await this.caller.listWebhooks(taskId);
    } catch (error) {
      return `${error.constructor.name}: ${error.message}`.slice(0, 300);
    }
  }

  async push() {
    const { caller } = this;
    const asked = await this.say('ask');
    const hook = await new Hook().open();
    try {
      const made = await caller.setWebhook(asked.id, 'hook', hook.url, TOKEN);
      const read = await caller.getWebhook(asked.id, 'hook');
      const left = await this.others(asked.id, `${hook.url}/another`);
      await this.say('green 🟢', [], { taskId: asked.id, contextId: asked.context });
      const { headers } = await hook.until('COMPLETED');
      return {
        made: made === hook.url,
        read: read === hook.url,
        left,
        told: 'COMPLETED',
        token: headers['x-a2a-notification-token'] ?? null,
      };
    } finally {
      hook.close();
    }
  }

  bearer() {
    return this.message();
  }

  async unknown_task() {
    const { caller } = this;
    return {
      get: await this.errorOf(caller.get('no-such-task')),
      send: await this.errorOf(caller.send([{ text: 'task x' }], { taskId: 'no-such-task' })),
      cancel: await this.errorOf(caller.cancel('no-such-task')),
      subscribe: await this.errorOf(caller.subscribe('no-such-task')),
    };
  }

  async ended_task() {
    const { caller } = this;
    const done = await this.say('task hello');
    return {
      send: await this.errorOf(caller.send([{ text: 'task more' }], { taskId: done.id, contextId: done.context })),
      cancel: await this.errorOf(caller.cancel(done.id)),
      subscribe: await this.errorOf(caller.subscribe(done.id)),
    };
  }
}

const ROWS = [
  'card',
  'message',
  'task',
  'blocking',
  'fail',
  'stream',
  'question',
  'cancel',
  'resubscribe',
  'files',
  'unicode',
  'data',
  'integers',
  'push',
  'unknown_task',
  'ended_task',
  'bearer',
];

function limited(work) {
  let timer;
  const limit = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error('TimeoutError')), ROW_LIMIT_MS);
  });
  return Promise.race([work, limit]).finally(() => clearTimeout(timer));
}

const told = (error, doing = '') => ({
  error: `${doing}${error.constructor.name}: ${error.message}`.slice(0, 600),
  trace: (error.stack ?? '').split('\n').slice(0, 14),
});

async function one(rows, call, text, taskId, contextId) {
  if (call === 'read') return { saw: await rows.caller.get(text) };
  return { saw: await rows.say(text, [], { ...(taskId && { taskId, contextId }) }) };
}

// Run as `client URL BINDING [ROW ...]`, or with `say TEXT [TASK_ID CONTEXT_ID]` or `read TASK_ID` behind the binding:
// `connect(url, binding)` gives a caller.
export async function main(connect) {
  const [url, binding, ...only] = process.argv.slice(2);
  if (only[0] === 'say' || only[0] === 'read') {
    const saw = await one(new Rows(await connect(url, binding)), ...only);
    process.stdout.write(JSON.stringify(saw), () => process.exit(0));
    return;
  }
  const rows = ROWS.filter((row) => only.length === 0 || only.includes(row));
  const found = {};
  try {
    const runner = new Rows(await connect(url, binding));
    for (const row of rows) {
      try {
        found[row] = { saw: await limited(runner[row]()) };
      } catch (error) {
        found[row] = told(error);
      }
    }
  } catch (error) {
    for (const row of rows) found[row] = told(error, 'connecting: ');
  }
  process.stdout.write(JSON.stringify(found), () => process.exit(0));
}
