// The official SDK @a2a-js/sdk 1.3.0 as a caller of the matrix: `node client.mjs URL BINDING [ROW ...]`.

import { randomUUID } from 'node:crypto';

import { Role, SendMessageRequest, TaskState } from '@a2a-js/sdk';
import {
  ClientFactory,
  createAuthenticatingFetchWithRetry,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { A2AError } from '@a2a-js/sdk/errors';

import { main } from '../rows.mjs';

const TRANSPORTS = { JSONRPC: JsonRpcTransportFactory, 'HTTP+JSON': RestTransportFactory, GRPC: GrpcTransportFactory };

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
    return answer(await this.client.sendMessage(requestOf(parts, ids)));
  }

  async *stream(parts) {
    for await (const event of this.client.sendMessageStream(requestOf(parts))) yield neutral(event);
  }

  async *subscribe(id) {
    for await (const event of this.client.resubscribeTask({ tenant: '', id })) yield neutral(event);
  }

  async get(id) {
    return taskOf(await this.client.getTask({ tenant: '', id }));
  }

  async cancel(id) {
    return taskOf(await this.client.cancelTask({ tenant: '', id }));
  }

  async setWebhook(taskId, id, url, token) {
    const config = { tenant: '', id, taskId, url, token, authentication: undefined };
    return (await this.client.createTaskPushNotificationConfig(config)).url;
  }

  async getWebhook(taskId, id) {
    return (await this.client.getTaskPushNotificationConfig({ tenant: '', taskId, id })).url;
  }

  async listWebhooks(taskId) {
    const request = { tenant: '', taskId, pageSize: 0, pageToken: '' };
    return (await this.client.listTaskPushNotificationConfig(request)).configs.map((config) => config.id);
  }

  async deleteWebhook(taskId, id) {
    await this.client.deleteTaskPushNotificationConfig({ tenant: '', taskId, id });
  }

  nameOf(error) {
    if (!(error instanceof A2AError)) return null;
    return error.constructor.name.replace(/^(JsonRpc|Rest|Grpc)/, '').replace(/Error$/, '');
  }
}

function requestOf(parts, { taskId = '', contextId = '' } = {}) {
  const message = { messageId: randomUUID(), role: 'ROLE_USER', taskId, contextId, parts: parts.map(partOf) };
  return SendMessageRequest.fromJSON({ message });
}

function partOf({ name, type, ...content }) {
  return { ...content, ...(name && { filename: name }), ...(type && { mediaType: type }) };
}

function answer(value) {
  if (!('messageId' in value)) return taskOf(value);
  return { kind: 'message', role: Role[value.role], parts: shown(value.parts) };
}

function neutral({ payload }) {
  const { $case: kind, value } = payload;
  if (kind === 'task' || kind === 'message') return answer(value);
  const ids = { id: value.taskId, context: value.contextId };
  if (kind === 'statusUpdate') return { kind: 'status', ...ids, ...statusOf(value.status) };
  return { kind: 'artifact', ...ids, name: value.artifact.name, parts: shown(value.artifact.parts) };
}

function taskOf(task) {
  const artifacts = Object.fromEntries(task.artifacts.map((one) => [one.name, shown(one.parts)]));
  return { kind: 'task', id: task.id, context: task.contextId, ...statusOf(task.status), artifacts };
}

function statusOf(status) {
  const parts = status.message?.parts ?? [];
  const words = shown(parts).map((part) => part.text ?? '').join('\n');
  return { state: TaskState[status.state].replace('TASK_STATE_', ''), words };
}

function shown(parts) {
  return parts.map(({ content, filename, mediaType }) => {
    const file = { name: filename || null, type: mediaType || null };
    switch (content.$case) {
      case 'raw':
        return { raw: Buffer.from(content.value).toString('base64'), ...file };
      case 'url':
        return { url: content.value, ...file };
      default:
        return { [content.$case]: content.value };
    }
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
