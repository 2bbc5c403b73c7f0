import type { OpenApiObject, OpenApiPart } from '../runtime/http/openapi.ts';
import { senderExamples } from './openapi-examples.ts';
import { refusalLimits } from './sender-routes.ts';

const tags = ['Import'];
const text = { type: 'string' };
const count = { type: 'integer', minimum: 0 };
const security = [{ importToken: [] }];
const parameters = [
  {
    name: 'idApp',
    in: 'query',
    required: true,
    description: 'The app that the token suits.',
    schema: { type: 'integer', minimum: 1 },
  },
];

function json(description: string, schema: OpenApiObject): OpenApiObject {
  return { description, content: { 'application/json': { schema } } };
}

const failed = { $ref: '#/components/schemas/ImportError' };
const refusals = {
  400: json('Bad Request', failed),
  403: json('Forbidden', failed),
  429: json('Too Many Requests', { type: 'object', properties: { error: text } }),
  500: json('Internal Server Error', failed),
};

/** The events of an answer that goes on. */
const liveAnswer = {
  description:
    'Server-sent events, until either side ends them. event: an acknowledged event, as the lake will have it. refusal: a Refusal. left_out: events and refusals that were not shown, sampled or because the client was slow.',
  content: { 'text/event-stream': { schema: text } },
};

/** What the schema of a record of a refusal is. */
const refusal = {
  type: 'object',
  description: 'Requests that were refused alike within a second or so.',
  required: ['time', 'method', 'status', 'error', 'detail', 'faults', 'bytes', 'requests'],
  properties: {
    time: { type: 'string', format: 'date-time' },
    method: { ...text, description: 'The import method; of another path the path.' },
    status: { type: 'integer' },
    error: text,
    detail: text,
    faults: {
      type: 'array',
      items: {
        type: 'object',
        required: ['pointer', 'reason'],
        properties: { pointer: text, reason: text, hint: text },
      },
    },
    excerpt: { ...text, description: 'Of the body of the first one, as far as the operator lets it be seen.' },
    bytes: { ...count, description: 'Size of the body of the first one, as it was sent.' },
    hasIdempotencyKey: { type: 'boolean' },
    isValidation: { type: 'boolean', description: 'It was sent with validate=1.' },
    requests: { type: 'integer', minimum: 1, description: 'How many they were.' },
    leftOut: { ...count, description: 'Refused requests since the record before that have none.' },
  },
};

/** The part of the API reference on what a sender may look at. */
export function describeSenderView(): OpenApiPart {
  const limit = {
    name: 'limit',
    in: 'query',
    required: false,
    schema: { type: 'integer', minimum: 1, maximum: refusalLimits.most, default: refusalLimits.fallback },
  };
  const list = {
    type: 'object',
    required: ['refusals'],
    properties: { refusals: { type: 'array', items: { $ref: '#/components/schemas/Refusal' } } },
  };
  return {
    area: 'import',
    paths: {
      '/v1/refusals': {
        get: {
          tags,
          summary: 'What of the app was refused lately, and why, newest first',
          security,
          parameters: [...parameters, limit],
          responses: { 200: json('The records.', list), ...refusals },
        },
      },
      '/v1/live': {
        get: {
          tags,
          summary: 'The events and refusals of the app, as they arrive',
          security,
          parameters,
          responses: { 200: liveAnswer, ...refusals },
        },
      },
    },
    examples: senderExamples,
    components: { schemas: { Refusal: refusal }, securitySchemes: {} },
  };
}
