// A tool worker in TypeScript: serves the tools that words.py declares, on a task queue of their own.
//
//   npm install && npm start             TEMPORAL_ADDRESS and TASK_QUEUE say where (127.0.0.1:7233, words)
//
// An activity is a tool when its type is the tool's name. Its input is one object, the arguments; its result is any JSON.

import { createHash } from 'node:crypto';

import { ApplicationFailure, activityInfo, heartbeat } from '@temporalio/activity';
import { NativeConnection, Worker } from '@temporalio/worker';

/** The same for every attempt of one call: a UUID of version 5 from the workflow's id and the activity's id. */
function idempotencyKey(): string {
  const { workflowExecution, activityId } = activityInfo();
  const space = Buffer.from(workflowExecution!.workflowId.replaceAll('-', ''), 'hex');
  const hash = createHash('sha1').update(space).update(activityId).digest().subarray(0, 16);
  hash[6] = (hash[6] & 0x0f) | 0x50;
  hash[8] = (hash[8] & 0x3f) | 0x80;
  const hex = hash.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** What it throws as non-retryable is told to the model at once; anything else is tried again first. */
async function word_count({ text }: { text: string }) {
  if (typeof text !== 'string') throw ApplicationFailure.nonRetryable('`text` must be a text', 'InvalidArguments');
  return { words: text.split(/\s+/).filter(Boolean).length, key: idempotencyKey() };
}

/** It heartbeats, so that its loss is noticed in 2.5 s and a stop reaches it. The reply asks to stop the run. */
async function last_word({ text }: { text: string }) {
  heartbeat();
  return { kind: 'holdfast.reply', text: text.split(/\s+/).at(-1) ?? '', stop: 'the last word has been said' };
}

const connection = await NativeConnection.connect({ address: process.env.TEMPORAL_ADDRESS ?? '127.0.0.1:7233' });
const worker = await Worker.create({
  connection,
  taskQueue: process.env.TASK_QUEUE ?? 'words',
  activities: { word_count, last_word },
  maxHeartbeatThrottleInterval: '250ms',
});
console.log('tools ready');
await worker.run(); // until SIGTERM or Ctrl-C
await connection.close();
