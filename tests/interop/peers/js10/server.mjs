// The puppet on the server of @a2a-js/sdk 1.3.0, built as its own samples build one.
//
//     node server.mjs PORT GRPC_PORT

import { randomUUID } from 'node:crypto';

import { AgentCard, Message, Part, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
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
    const message = { messageId: randomUUID(), role: 'ROLE_AGENT', contextId, parts: [{ text }] };
    this.bus.publish(AgentEvent.message(Message.fromJSON(message)));
  }

  async begin() {
    // Each run begins with the task, one that goes on too.
    const { taskId: id, contextId } = this.ids;
    const status = { state: 'TASK_STATE_SUBMITTED', timestamp: new Date().toISOString() };
    const made = { ...Task.fromJSON({ id, contextId, status }), history: [this.message] };
    this.bus.publish(AgentEvent.task(this.task ?? made));
  }

  async status(state, words) {
    const timestamp = new Date().toISOString();
    const message = words && { messageId: randomUUID(), role: 'ROLE_AGENT', ...this.ids, parts: [{ text: words }] };
    const status = { state: `TASK_STATE_${state}`, timestamp, message };
    this.bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ ...this.ids, status })));
  }

  async artifact(name, parts, { append = false, last = true } = {}) {
    const update = { ...this.ids, append, lastChunk: last, artifact: { artifactId: name, name, parts: [] } };
    const event = TaskArtifactUpdateEvent.fromJSON(update);
    event.artifact.parts = parts.map(partOf);
    this.bus.publish(AgentEvent.artifactUpdate(event));
  }
}

function given({ content, filename, mediaType }) {
  if (content.$case === 'text' || content.$case === 'data') return { [content.$case]: content.value };
  const value = content.$case === 'raw' ? Buffer.from(content.value).toString('base64') : content.value;
  return { [content.$case]: value, name: filename, type: mediaType };
}

function partOf({ name, type, ...content }) {
  return Part.fromJSON({ ...content, ...(name && { filename: name }), ...(type && { mediaType: type }) });
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
const card = AgentCard.fromJSON({
  name: NAME,
  description: DESCRIPTION,
  version: '1.0.0',
  capabilities: { streaming: true, pushNotifications: true },
  defaultInputModes: ['text/plain'],
  defaultOutputModes: ['text/plain'],
  skills: [{ id: SKILL, name: NAME, description: DESCRIPTION, tags: ['test'] }],
  supportedInterfaces: [
    { protocolBinding: 'JSONRPC', protocolVersion: '1.0', url: `${url}/rpc` },
    { protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', url: `${url}/rest` },
    { protocolBinding: 'GRPC', protocolVersion: '1.0', url: `127.0.0.1:${grpcPort}` },
  ],
});
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
