// The official SDK @a2a-js/sdk 0.3.14 as a caller of the matrix: `node client.mjs URL BINDING [ROW ...]`.

import { randomUUID } from 'node:crypto';

import {
  ClientFactory,
  createAuthenticatingFetchWithRetry,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';

import { main } from '../rows.mjs';

const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

const CODES = {
  '-32001': 'TaskNotFound',
  '-32002': 'TaskNotCancelable',
  '-32004': 'UnsupportedOperation',
  '-32600': 'InvalidRequest',
  '-32602': 'InvalidParams',
};

class OfficialCaller {
  constructor(client) {
    this.client = client;
  }

  async card() {
    const card = await this.client.getAgentCard();
    return {
      name: card.name,
      description: card.description,
      streaming: card.capabilities.streaming,
      skills: card.skills.map((skill) => skill.id),
    };
  }

  async send(parts, ids = {}) {
    return neutral(await this.client.sendMessage({ message: messageOf(parts, ids) }));
  }

  async *stream(parts) {
    for await (const event of this.client.sendMessageStream({ message: messageOf(parts) })) yield neutral(event);
  }

  async *subscribe(id) {
    for await (const event of this.client.resubscribeTask({ id })) yield neutral(event);
  }

  async get(id) {
    return neutral(await this.client.getTask({ id }));
  }

  async cancel(id) {
    return neutral(await this.client.cancelTask({ id }));
  }

  async setWebhook(taskId, id, url, token) {
    const made = await this.client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig: { id, url, token } });
    return made.pushNotificationConfig.url;
  }

  async getWebhook(id, pushNotificationConfigId) {
    return (await this.client.getTaskPushNotificationConfig({ id, pushNotificationConfigId })).pushNotificationConfig.url;
  }

  async listWebhooks(id) {
    return (await this.client.listTaskPushNotificationConfig({ id })).map((config) => config.pushNotificationConfig.id);
  }

  async deleteWebhook(id, pushNotificationConfigId) {
    await this.client.deleteTaskPushNotificationConfig({ id, pushNotificationConfigId });
  }

  nameOf(error) {
    const name = error.constructor.name.replace(/(JSONRPC)?Error$/, '');
    // In a stream, and for codes without a class, the SDK raises a bare Error with the code in its words.
    return CODES[/Code: (-\d+)/.exec(error.message)?.[1]] ?? (name || null);
  }
}

function messageOf(parts, ids = {}) {
  return { kind: 'message', messageId: randomUUID(), role: 'user', parts: parts.map(partOf), ...ids };
}

function partOf(part) {
  if ('text' in part) return { kind: 'text', text: part.text };
  if ('data' in part) return { kind: 'data', data: part.data };
  const content = 'raw' in part ? { bytes: part.raw } : { uri: part.url };
  return { kind: 'file', file: { ...content, name: part.name, mimeType: part.type } };
}

function neutral(value) {
  if (value.kind === 'message') {
    return { kind: 'message', role: `ROLE_${value.role.toUpperCase()}`, parts: shown(value.parts) };
  }
  if (value.kind === 'task') {
    const artifacts = Object.fromEntries((value.artifacts ?? []).map((one) => [one.name, shown(one.parts)]));
    return { kind: 'task', id: value.id, context: value.contextId, ...statusOf(value.status), artifacts };
  }
  const ids = { id: value.taskId, context: value.contextId };
  if (value.kind === 'status-update') return { kind: 'status', ...ids, ...statusOf(value.status) };
  return { kind: 'artifact', ...ids, name: value.artifact.name, parts: shown(value.artifact.parts) };
}

function statusOf(status) {
  const words = (status.message?.parts ?? []).map((part) => part.text ?? '').join('\n');
  return { state: status.state.toUpperCase().replace('-', '_'), words };
}

function shown(parts) {
  return parts.map((part) => {
    if (part.kind === 'text') return { text: part.text };
    if (part.kind === 'data') return { data: part.data };
    const { file } = part;
    const content = 'bytes' in file && file.bytes !== undefined ? { raw: file.bytes } : { url: file.uri };
    return { ...content, name: file.name || null, type: file.mimeType || null };
  });
}

// The SDK's own way to show a token over HTTP; over gRPC it goes where the SDK puts metadata.
function showing(token) {
  const headers = async () => ({ Authorization: `Bearer ${token}` });
  return createAuthenticatingFetchWithRetry(fetch, { headers, shouldRetryWithHeaders: async () => undefined });
}

function metadataWith(token) {
  return {
    async before(args) {
      const serviceParameters = { ...args.options?.serviceParameters, authorization: `Bearer ${token}` };
      args.options = { ...args.options, serviceParameters };
    },
    async after() {},
  };
}

await main(async (url, binding) => {
  const token = process.env.INTEROP_TOKEN;
  const options = { transports: [new TRANSPORTS[binding](token && { fetchImpl: showing(token) })] };
  const interceptors = token && binding === 'GRPC' ? [metadataWith(token)] : [];
  const factory = new ClientFactory({ ...options, preferredTransports: [binding], clientConfig: { interceptors } });
  return new OfficialCaller(await factory.createFromUrl(url));
});
