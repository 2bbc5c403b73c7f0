import { platforms } from '../datasets/field-schema.ts';
import type { OpenApiObject } from '../runtime/http/openapi.ts';

const hash: OpenApiObject = { type: 'string', pattern: '^[0-9a-f]{64}$' };
const time: OpenApiObject = { type: 'string', format: 'date-time' };
const count: OpenApiObject = { type: 'integer', minimum: 0 };
const text: OpenApiObject = { type: 'string' };

/** An object that has these members and no other. */
function closed(properties: Readonly<Record<string, OpenApiObject>>, description: string): OpenApiObject {
  return { type: 'object', description, required: Object.keys(properties), additionalProperties: false, properties };
}

/** A receipt (src/receipts/receipt.ts), as the API reference shows it. */
export const receiptSchema: OpenApiObject = closed(
  {
    receiptVersion: { type: 'integer', const: 1 },
    idApp: count,
    method: text,
    platform: { type: 'string', enum: platforms },
    receivedAt: time,
    salt: { type: 'string', pattern: '^[0-9a-f]{32}$' },
    events: {
      type: 'array',
      items: closed({ eventId: text, sha256: hash }, 'An event in the order of the request, by its salted digest.'),
    },
    group: closed(
      {
        stream: text,
        sequence: { ...count, description: 'Of the message that the events are in.' },
        storedAt: time,
        requests: { ...count, description: 'Requests of the group that asked for a receipt.' },
        index: { ...count, description: 'Place of this one among them, from 0.' },
        path: { type: 'array', items: hash, description: 'From its leaf to the root (RFC 6962).' },
        key: { ...hash, description: 'The public Ed25519 key.' },
        signature: { type: 'string', pattern: '^[0-9a-f]{128}$' },
      },
      'Where the events are, signed once for the group.',
    ),
  },
  "Only with Prefer: receipt. Keep it: 'tributary verify' shows later where its events are.",
);

/** The operation that answers the public key of receipts. */
export const receiptKey: OpenApiObject = {
  tags: ['Import'],
  summary: 'The public key that receipts are verified with',
  security: [],
  responses: {
    '200': {
      description: 'The key that signs, and every key that ever did.',
      content: {
        'application/json': {
          schema: {
            type: 'object',
            required: ['algorithm', 'key', 'keys'],
            properties: {
              algorithm: { type: 'string', const: 'Ed25519' },
              key: hash,
              keys: { type: 'array', items: hash },
            },
          },
        },
      },
    },
    '500': { description: 'The keys cannot be read.' },
  },
};
