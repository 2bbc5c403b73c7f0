/** API reference of a sender's queries: where an event is, refusals, receipts and their keys. */
import { platforms } from '../datasets/field-schema.ts';
import { describeFormerNames } from '../runtime/former-names.ts';
import {
  choice,
  constant,
  count,
  flag,
  hash,
  json,
  listOf,
  moment,
  note,
  object,
  parameter,
  reference,
  text,
  type OpenApiObject,
  type OpenApiPart,
  type Schema,
} from '../runtime/http/openapi.ts';
import { eventQuota, eventsQuota, maxListedQueries } from './event-lookup.ts';
import { maxKeyLength } from './required-ids.ts';
import { senderExamples } from './openapi-examples.ts';
import type { RefusalReason } from './refusal.ts';
import { refusalLimits } from './diagnostics-routes.ts';

const tags = ['Import'];
const security = [{ importToken: [] }];
const closed = { additionalProperties: false };

export const idApp = parameter('idApp', { type: 'integer', minimum: 1 }, 'The app of the token.');

export const lookupRefusals: readonly RefusalReason[] = ['version', 'rules', 'token', 'quota', 'busy', 'internal'];

export const eventsRefusals: readonly RefusalReason[] = [...lookupRefusals, 'size', 'json'];

const eventIdText = { type: 'string', format: 'uuid' };
const keyText = { type: 'string', minLength: 1, maxLength: maxKeyLength };
const transactionText = { type: 'string', minLength: 1 };
const sources = choice(['lake', 'failed', 'stream']);

export const lookupSchemas: Readonly<Record<string, Schema>> = {
  FoundEvent: object(
    {
      state: choice(['in_stream', 'in_lake', 'failed']),
      eventId: text,
      'kind?': text,
      'eventTime?': moment,
      'receivedAt?': moment,
      'availableAt?': note(moment, 'Time since which it can be exported; only of an event in the lake.'),
      'table?': note(text, 'Table; only of an event in the lake.'),
      'version?': {
        type: 'integer',
        description: 'First version of the table that has it; absent if it is older than the log.',
      },
      'reason?': note(
        choice(['bad_json', 'bad_value', 'key_reused', 'too_large']),
        'Reason of a failed event. key_reused: the Idempotency-Key was used for another request.',
      ),
      'failedAt?': moment,
    },
    closed,
  ),
  EventAnswer: object(
    {
      state: note(
        choice(['in_stream', 'in_lake', 'failed', 'erased', 'never_seen']),
        'State of the first event. never_seen: the app has no such event.',
      ),
      events: { ...listOf(reference('FoundEvent')), maxItems: 768 },
      'unchecked?': listOf(
        sources,
        'Places that were not searched in time and may have more events of the request; absent if all were searched.',
      ),
      'watermark?': note(
        moment,
        "For state never_seen: no event acknowledged before this time of the broker's clock is the one sought; absent if unknown.",
      ),
    },
    closed,
  ),
};

const listedEvent = object(
  {
    state: note(
      choice(['in_stream', 'in_lake', 'failed', 'erased', 'never_seen', 'unknown']),
      'unknown: not found, but a place in unchecked was not searched.',
    ),
    'eventId?': text,
    'kind?': text,
    'eventTime?': moment,
    'receivedAt?': moment,
    'availableAt?': moment,
    'table?': text,
    'reason?': choice(['bad_json', 'bad_value', 'key_reused', 'too_large']),
    'failedAt?': moment,
    'events?': {
      type: 'object',
      additionalProperties: count,
      description: 'Of a key: number of events of its request by state; the other members are those of the first.',
    },
  },
  closed,
);

export function describeEventsLookup(refusals: OpenApiObject): OpenApiObject {
  return {
    tags,
    summary: 'Look up many events',
    description: `All are looked up at once. At most ${eventsQuota.limit} requests per second and app.`,
    security,
    parameters: [idApp],
    requestBody: {
      required: true,
      content: {
        'application/json': {
          schema: {
            type: 'array',
            minItems: 1,
            maxItems: maxListedQueries,
            items: object({ 'eventId?': eventIdText, 'key?': keyText, 'idTransaction?': transactionText }, closed),
          },
        },
      },
    },
    responses: {
      200: json(
        'States in the order of the body.',
        object(
          {
            events: listOf(listedEvent),
            'unchecked?': listOf(sources, 'Places that were not searched completely; absent if all were searched.'),
            'watermark?': note(moment, 'As of a single lookup, for each event in the state never_seen.'),
          },
          closed,
        ),
      ),
      ...refusals,
    },
  };
}

export function describeEventLookup(refusals: OpenApiObject): OpenApiObject {
  return {
    tags,
    summary: 'Look up an event',
    description: `Either eventId, key or idTransaction. At most ${eventQuota.limit} requests per second and app.`,
    security,
    parameters: [
      idApp,
      parameter('eventId?', eventIdText, 'The id of an imported event, as exports have it.'),
      parameter('key?', keyText, 'Idempotency-Key of a request, all of whose events are looked up.'),
      parameter(
        'idTransaction?',
        transactionText,
        'The transaction of a customRevenue, which counts instead of a key.',
      ),
    ],
    responses: {
      200: json('State of the event, or of each event of the request.', reference('EventAnswer')),
      ...refusals,
    },
  };
}

export const receiptSchema = object(
  {
    receiptVersion: constant(1),
    idApp: count,
    method: text,
    platform: choice(platforms),
    receivedAt: moment,
    salt: { type: 'string', pattern: '^[0-9a-f]{32}$' },
    events: listOf(
      object(
        { eventId: text, sha256: hash },
        { ...closed, description: 'An event in the order of the request, by its salted digest.' },
      ),
    ),
    group: object(
      {
        stream: text,
        sequence: note(count, 'Sequence of the message of the events.'),
        storedAt: moment,
        requests: note(count, 'Requests of the group that asked for a receipt.'),
        index: note(count, 'Index of this request among them, from 0.'),
        path: listOf(hash, 'From its leaf to the root (RFC 6962).'),
        key: note(hash, 'The public Ed25519 key.'),
        signature: { type: 'string', pattern: '^[0-9a-f]{128}$' },
      },
      { ...closed, description: 'Position of the events in the stream, signed once per group.' },
    ),
  },
  {
    ...closed,
    description: "Only with Prefer: receipt. Keep it: 'tributary verify' shows later where its events are.",
  },
);

export const receiptKey: OpenApiObject = {
  tags,
  summary: 'Get the public keys of receipts',
  security: [],
  responses: {
    200: json(
      'Current and former signing keys.',
      object({ algorithm: constant('Ed25519'), key: hash, keys: listOf(hash) }),
    ),
    500: { description: 'The keys cannot be read.' },
  },
};

const failed = reference('ImportError');
const refusals = {
  400: json('Bad Request', failed),
  403: json('Forbidden', failed),
  429: json('Too Many Requests', { type: 'object', properties: { error: text } }),
  500: json('Internal Server Error', failed),
};

const liveAnswer = {
  description:
    'Server-sent events, until either side ends them. event: an acknowledged event, as the lake will have it. refusal: a Refusal. dropped: counts of events and refusals that were not sent, and the reason: sampled or slow. left_out: the same, deprecated, until 0.5.',
  content: { 'text/event-stream': { schema: text } },
};

export const fault = object({ pointer: text, reason: text, 'hint?': text });

const refusal = describeFormerNames(
  'refusal',
  object(
    {
      time: moment,
      method: note(text, 'The import method; of another path the path.'),
      status: { type: 'integer' },
      error: text,
      detail: text,
      errors: listOf(fault),
      'excerpt?': note(text, 'Excerpt of the first body, as far as the operator allows.'),
      bytes: note(count, 'Size of the first body as sent.'),
      'hasIdempotencyKey?': flag,
      'isValidation?': note(flag, 'Whether it was sent with validate=1.'),
      requests: { type: 'integer', minimum: 1, description: 'Number of requests.' },
      'requestsNotRecorded?': note(count, 'Rejected requests without a record since the previous record.'),
    },
    { description: 'Rejected requests with the same error within about a second.' },
  ),
);

const look = (summary: string, parameters: readonly Schema[], answer: OpenApiObject): OpenApiObject => ({
  get: { tags, summary, security, parameters, responses: { 200: answer, ...refusals } },
});

export function describeDiagnostics(): OpenApiPart {
  const { most, fallback } = refusalLimits;
  const limit = parameter('limit?', { type: 'integer', minimum: 1, maximum: most, default: fallback });
  return {
    area: 'import',
    paths: {
      '/v1/refusals': look(
        'List recently rejected requests, newest first',
        [idApp, limit],
        json(
          'The records.',
          object({
            refusals: listOf(reference('Refusal')),
            'hostsWithoutAnswer?': note(listOf(text), 'Hosts that did not answer, which may have more.'),
          }),
        ),
      ),
      '/v1/live': look('Stream events and refusals as they arrive', [idApp], liveAnswer),
    },
    examples: senderExamples,
    components: { schemas: { Refusal: refusal }, securitySchemes: {} },
  };
}
