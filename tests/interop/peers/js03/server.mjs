// The puppet on the server of @a2a-js/sdk 0.3.14, built as its own samples build one.
//
//     node server.mjs PORT GRPC_PORT

import { randomUUID } from 'node:crypto';

import { DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import { A2AService, grpcService } from '@a2a-js/sdk/server/grpc';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import express from 'express';

import { DESCRIPTION, NAME, perform, SKILL } from '../puppet.mjs';

const [port, grpcPort] = process.argv.slice(2).map(Number);
const canceled = new Set();

class OfficialStage {
  constructor(context, bus) {
    this.task = context.task;
    this.message = context.userMessage;
    this.parts = context.userMessage.parts.map(given);
    this.answers = context.task !== undefined;
    this.ids = { taskId: context.taskId, contextId: context.contextId };
    this.bus = bus;
  }

  canceled() {
    return canceled.has(this.ids.taskId);
  }

  async reply(text) {
    const { contextId } = this.ids;
    const parts = [{ kind: 'text', text }];
    this.bus.publish({ kind: 'message', messageId: randomUUID(), role: 'agent', contextId, parts });
  }

  async begin() {
    if (this.task) return;
    const { taskId: id, contextId } = this.ids;
    const status = { state: 'submitted', timestamp: new Date().toISOString() };
    this.bus.publish({ kind: 'task', id, contextId, status, history: [this.message], artifacts: [] });
  }

  async status(state, words) {
    const parts = [{ kind: 'text', text: words }];
    const status = { state: state.toLowerCase().replace('_', '-'), timestamp: new Date().toISOString() };
    if (words) status.message = { kind: 'message', messageId: randomUUID(), role: 'agent', ...this.ids, parts };
    this.bus.publish({ kind: 'status-update', ...this.ids, status, final: state !== 'WORKING' });
  }

  async artifact(name, parts, { append = false, last = true } = {}) {
    const artifact = { artifactId: name, name, parts: parts.map(partOf) };
    this.bus.publish({ kind: 'artifact-update', ...this.ids, artifact, append, lastChunk: last });
  }
}

function given(part) {
  if (part.kind === 'text') return { text: part.text };
  if (part.kind === 'data') return { data: part.data };
  const { bytes, uri, name, mimeType } = part.file;
  return { ...(bytes === undefined ? { url: uri } : { raw: bytes }), name, type: mimeType };
}

function partOf(part) {
  if ('text' in part) return { kind: 'text', text: part.text };
  if ('data' in part) return { kind: 'data', data: part.data };
  const content = 'raw' in part ? { bytes: part.raw } : { uri: part.url };
  return { kind: 'file', file: { ...content, name: part.name, mimeType: part.type } };
}

const executor = {
  async execute(context, bus) {
    await perform(new OfficialStage(context, bus));
    bus.finished();
  },
  async cancelTask(taskId) {
    canceled.add(taskId);
  },
};

const url = `http://127.0.0.1:${port}`;
const card = {
  name: NAME,
  description: DESCRIPTION,
  protocolVersion: '0.3.0',
  version: '1.0.0',
  url: `${url}/rpc`,
  preferredTransport: 'JSONRPC',
  additionalInterfaces: [
    { transport: 'JSONRPC', url: `${url}/rpc` },
    { transport: 'HTTP+JSON', url: `${url}/rest` },
    { transport: 'GRPC', url: `127.0.0.1:${grpcPort}` },
  ],
  capabilities: { streaming: true, pushNotifications: true },
  defaultInputModes: ['text/plain'],
  defaultOutputModes: ['text/plain'],
  skills: [{ id: SKILL, name: NAME, description: DESCRIPTION, tags: ['test'] }],
};
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
const userBuilder = UserBuilder.noAuthentication;
const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
app.use('/rpc', jsonRpcHandler({ requestHandler, userBuilder }));
app.use('/rest', restHandler({ requestHandler, userBuilder }));
const server = new Server();
server.addService(A2AService, grpcService({ requestHandler, userBuilder }));
server.bindAsync(`127.0.0.1:${grpcPort}`, ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  app.listen(port, '127.0.0.1');
});
process.on('SIGTERM', () => process.exit(0));
