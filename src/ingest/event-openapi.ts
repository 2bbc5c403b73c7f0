import type { OpenApiObject } from '../runtime/http/openapi.ts';
import { eventQuota } from './event-look-up.ts';
import { maxKeyLength } from './limits.ts';
import type { RefusalReason } from './refusal.ts';

/** The part of the API reference that says where an event is. */

/** What a question may be refused for. */
export const lookUpRefusals: readonly RefusalReason[] = ['version', 'rules', 'token', 'quota', 'busy', 'internal'];

const time = { type: 'string', format: 'date-time' };

/** The schemas of its answers. */
export const lookUpSchemas: Record<string, OpenApiObject> = {
  FoundEvent: {
    type: 'object',
    required: ['state', 'eventId'],
    additionalProperties: false,
    properties: {
      state: { type: 'string', enum: ['in_stream', 'in_lake', 'failed'] },
      eventId: { type: 'string' },
      kind: { type: 'string' },
      eventTime: time,
      receivedAt: time,
      availableAt: { ...time, description: 'In the lake: since when it can be exported.' },
      table: { type: 'string', description: 'In the lake: its table.' },
      version: {
        type: 'integer',
        description:
          'In the lake: the first version of that table that has it; absent where the log does not reach back so far.',
      },
      reason: {
        type: 'string',
        enum: ['bad_json', 'bad_value', 'key_reused', 'too_large'],
        description: 'Failed: why it could not be written. key_reused: the key stands for another request.',
      },
      failedAt: time,
    },
  },
  EventAnswer: {
    type: 'object',
    required: ['state', 'events'],
    additionalProperties: false,
    properties: {
      state: {
        type: 'string',
        enum: ['in_stream', 'in_lake', 'failed', 'erased', 'never_seen'],
        description: 'That of the first event. never_seen: the app has no such event.',
      },
      events: { type: 'array', maxItems: 768, items: { $ref: '#/components/schemas/FoundEvent' } },
      unchecked: {
        type: 'array',
        items: { type: 'string', enum: ['lake', 'failed', 'stream'] },
        description:
          'Where more events of the request may be, since it could not be looked through in time; absent if there are none.',
      },
      watermark: {
        ...time,
        description:
          "Of one never seen: no event that was answered with 200 before the broker's clock first showed this is it; absent where that is not known.",
      },
    },
  },
};

/** The answer to a question. */
export const lookUpAnswer: Record<string, OpenApiObject> = {
  '200': {
    description: 'Where the event is, or each event of the request.',
    content: { 'application/json': { schema: { $ref: '#/components/schemas/EventAnswer' } } },
  },
};

/** The operation, without its responses. */
export function describeEventLookUp(idApp: OpenApiObject): OpenApiObject {
  return {
    summary: 'Where an event is',
    description: `Either eventId, key or idTransaction. At most ${eventQuota.limit} questions of an app a second.`,
    security: [{ importToken: [] }],
    parameters: [
      idApp,
      {
        name: 'eventId',
        in: 'query',
        required: false,
        description: 'The id of an imported event, as exports have it.',
        schema: { type: 'string', format: 'uuid' },
      },
      {
        name: 'key',
        in: 'query',
        required: false,
        description: 'The Idempotency-Key of a request: each of its events is looked for.',
        schema: { type: 'string', minLength: 1, maxLength: maxKeyLength },
      },
      {
        name: 'idTransaction',
        in: 'query',
        required: false,
        description: 'The transaction of a customRevenue, which counts instead of a key.',
        schema: { type: 'string', minLength: 1 },
      },
    ],
  };
}
