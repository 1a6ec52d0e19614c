// The puppet in JavaScript: what puppet.py says, on a stage of either version of the SDK.
//
// A stage has: parts (of the message), answers (it answers the question of an earlier run), canceled(), and the async
// reply(text), begin(), status(state, words), artifact(name, parts, {append, last}).

export const NAME = 'Puppet';
export const DESCRIPTION = 'Does what it is told.';
export const SKILL = 'puppet';

const FILES = [
  {
    raw: Buffer.from(Array.from({ length: 256 }, (_, value) => value)).toString('base64'),
    name: 'bytes ü 🦊.bin',
    type: 'application/octet-stream',
  },
  {
    url: 'https://files.example/a%20picture.png?size=1&name=%C3%BC',
    name: 'picture.png',
    type: 'image/png',
  },
];
const TICK_MS = 100;
const WAIT_LIMIT_MS = 10_000;

const released = new Set();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

export async function perform(stage) {
  const text = stage.parts[0].text ?? '';
  const space = text.indexOf(' ');
  const [first, rest] = space < 0 ? [text, ''] : [text.slice(0, space), text.slice(space + 1)];
  const [word, argument] = stage.answers ? ['colour', text] : [first, rest];
  if (word === 'message') return stage.reply(`heard: ${argument}`);
  if (word === 'release') {
    released.add(argument);
    return stage.reply('released');
  }
  await stage.begin();
  if (word === 'ask') return stage.status('INPUT_REQUIRED', 'Which colour?');
  await stage.status('WORKING');
  switch (word) {
    case 'task':
      await stage.artifact('result', [{ text: `done: ${argument}` }]);
      return stage.status('COMPLETED', 'finished');
    case 'fail':
      return stage.status('FAILED', argument);
    case 'hold':
      await waitFor(stage, () => false);
      return stage.status('CANCELED');
    case 'stream':
      await stage.artifact('count', [{ text: '1 ' }], { last: false });
      await waitFor(stage, () => released.has(argument));
      for (let number = 2; number <= 5; number++) {
        await stage.artifact('count', [{ text: `${number} ` }], { append: true, last: number === 5 });
      }
      break;
    case 'colour':
      await stage.artifact('result', [{ text: `colour: ${argument}` }]);
      break;
    case 'files':
      await stage.artifact('files', FILES);
      break;
    case 'echo':
      await stage.artifact('echo', stage.parts.slice(1));
      break;
    case 'describe':
      await stage.artifact('seen', stage.parts.slice(1).map((part) => ({ text: described(part) })));
      break;
    case 'numbers': {
      const heard = stage.parts[1].data;
      await stage.artifact('numbers', [{ data: heard }, { text: sorted(heard) }]);
      break;
    }
    default:
      return stage.status('REJECTED', `What is '${word}'?`);
  }
  return stage.status('COMPLETED');
}

function described({ raw, url, name, type }) {
  const content = raw === undefined ? url : Buffer.from(raw, 'base64').toString('hex');
  return `${content} ${name} ${type}\n`;
}

async function waitFor(stage, done) {
  const until = Date.now() + WAIT_LIMIT_MS;
  while (!done() && !stage.canceled()) {
    if (Date.now() > until) throw new Error('nobody came');
    await stage.status('WORKING', 'waiting');
    await pause(TICK_MS);
  }
}

// As json.dumps(value, sort_keys=True) of a flat object.
export function sorted(value) {
  return `{${Object.keys(value).sort().map((key) => `"${key}": ${JSON.stringify(value[key])}`).join(', ')}}`;
}
