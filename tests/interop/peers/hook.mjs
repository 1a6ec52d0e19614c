// A webhook that remembers what it was told: what hook.py says.

import { once } from 'node:events';
import { createServer } from 'node:http';

const LIMIT_MS = 15_000;

export class Hook {
  told = [];

  async open() {
    this.server = createServer(async (request, response) => {
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      this.told.push({ headers: request.headers, body: JSON.parse(Buffer.concat(chunks).toString()) });
      response.end();
      this.server.emit('told');
    });
    this.server.listen(0, '127.0.0.1');
    await once(this.server, 'listening');
    this.url = `http://127.0.0.1:${this.server.address().port}/hook`;
    return this;
  }

  close() {
    this.server.close();
  }

  async until(state) {
    const signal = AbortSignal.timeout(LIMIT_MS);
    for (;;) {
      const found = this.told.find(({ body }) => stateIn(body) === state);
      if (found) return found;
      await once(this.server, 'told', { signal });
    }
  }
}

export function stateIn(body) {
  const value = [body.statusUpdate, body.task, body].find((one) => one?.status);
  return value?.status.state.toUpperCase().replace('TASK_STATE_', '').replace('-', '_');
}
