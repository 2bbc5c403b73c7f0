import { getKind, importKinds, importMethods } from '../datasets/dataset.ts';
import { eventFields, eventSchemas } from '../datasets/event-fields.ts';
import type { FieldSchema, EventKind } from '../datasets/field-schema.ts';
import { jsonNumberPattern } from '../datasets/json-number.ts';
import { describeFormerNames } from '../runtime/former-names.ts';
import {
  type OpenApiObject,
  type OpenApiPart,
  choice,
  json,
  listOf,
  object,
  parameter,
  reference,
  text,
} from '../runtime/http/openapi.ts';
import { importExamples } from './openapi-examples.ts';
import { maxBatchEvents, maxBodyBytes, maxKeyLength } from './required-ids.ts';
import { answerOf, lookupReasons, refusalReasons, type RefusalReason } from './refusal.ts';
import {
  describeEventLookup,
  describeEventsLookup,
  eventsRefusals,
  fault,
  idApp,
  lookupRefusals,
  lookupSchemas,
  receiptKey,
  receiptSchema,
} from './diagnostics-openapi.ts';

/** Returns the name of a kind's schema: `CustomEvent` for `custom_event`. */
function schemaNameOf(kind: EventKind): string {
  return kind.replaceAll(/(?:^|_)([a-z])/g, (_all, letter: string) => letter.toUpperCase());
}

/** Identifiers that an event needs (required-ids.ts). */
const identification = {
  user: 'customUserId is required; for an app on mini-app customPlatformUserId and xPlatform instead.',
  userOrDevice:
    'customUserId and/or one of instanceId, lvid, gaid, androidId, appSetId, idfa, iosVendorId is required; for an app on mini-app customPlatformUserId and ' +
    'xPlatform instead, on game sezamUserId and/or lvid. An empty text identifies no user.',
};

/** Describes a number that may also be written as a JSON string. */
const numberOrText = (number: OpenApiObject, notes: OpenApiObject): OpenApiObject => ({
  ...Object.fromEntries(Object.entries(notes).filter(([, value]) => value !== undefined)),
  anyOf: [
    number,
    { type: 'string', pattern: jsonNumberPattern, description: 'The same number, written as a JSON string.' },
  ],
});

/** Describes a field: own keywords renamed, numbers also as JSON strings. */
function describeField(schema: FieldSchema): OpenApiObject {
  const range = schema.decimalRange;
  if (range?.places !== undefined) {
    const bounds = { minimum: Number(range.minimum), maximum: Number(range.maximum) };
    return numberOrText({ type: 'number', ...bounds }, { description: schema.description });
  }
  const described = Object.fromEntries(
    Object.entries(schema).flatMap(([keyword, value]) => {
      if (keyword === 'x-column' || keyword === 'x-column-type') return [];
      return [[keyword === 'decimalRange' ? 'x-decimal-range' : keyword, value]];
    }),
  );
  if (schema.type !== 'integer') {
    return schema.oneOf === undefined
      ? described
      : { ...described, oneOf: schema.oneOf.map((branch) => describeField(branch as FieldSchema)) };
  }
  // The default stays with the number: next to anyOf, client generators take it for one of the pair.
  const { description, 'x-platforms': onPlatforms, 'x-unit': unit, ...rules } = described;
  return numberOrText(rules, { description, 'x-platforms': onPlatforms, 'x-unit': unit });
}

function keyNote(kind: EventKind): string {
  const { key } = getKind(kind);
  return key.length === 0
    ? ''
    : `It is known by its app and ${key.join(', ')}: if it is sent again, by any method and at any time, the response is 200 and it is stored once. `;
}

function describeKind(kind: EventKind): OpenApiObject {
  const eventSchema = eventSchemas.get(kind);
  if (eventSchema === undefined) throw new Error(`${kind} is not a kind of event`);
  const { title, description, required } = eventSchema;
  const fields = eventFields.filter((field) => field.kinds.includes(kind));
  return {
    title,
    description: `${description} ${keyNote(kind)}${identification[getKind(kind).allowsDeviceOnly ? 'userOrDevice' : 'user']} Unknown parameters are ignored.`,
    type: 'object',
    ...(required === undefined ? {} : { required }),
    properties: Object.fromEntries(fields.map(({ name, schema }) => [name, describeField(schema)])),
  };
}

const tags = ['Import'];
const detailHeader = {
  description: 'The first validation error: a JSON pointer into the body, and the reason.',
  schema: { type: 'string', maxLength: 200 },
};

const retryAfter = { description: 'Seconds to wait before trying again.', schema: { type: 'integer' } };

/** Describes refusals, one response per status. */
function describeReasons(reasons: readonly RefusalReason[]): Record<string, OpenApiObject> {
  const reasonResponses = reasons.map(answerOf);
  const describeStatus = (status: number): OpenApiObject => {
    const texts = [...new Set(reasonResponses.filter((answer) => answer.status === status).map(({ error }) => error))];
    const retry = [429, 500, 503].includes(status) ? { 'Retry-After': retryAfter } : {};
    const examples = Object.fromEntries(texts.map((error) => [error, { value: { error } }]));
    return {
      description: texts.join(', '),
      headers: { 'X-Error-Detail': detailHeader, ...retry },
      content: { 'application/json': { schema: reference('ImportError'), examples } },
    };
  };
  return Object.fromEntries(reasonResponses.map(({ status }) => [String(status), describeStatus(status)]));
}

const describeRefusals = (): Record<string, OpenApiObject> =>
  describeReasons(refusalReasons.filter((reason) => !lookupReasons.includes(reason)));

const idempotencyKey = parameter(
  'Idempotency-Key?',
  { type: 'string', minLength: 1, maxLength: maxKeyLength },
  "The client's key of this request: repeats within 24 hours are stored once.",
  'header',
);
const validate = parameter(
  'validate?',
  { ...choice(['0', '1']), default: '0' },
  '1: the request is checked, and nothing is stored.',
);
const prefer = parameter(
  'Prefer?',
  text,
  'errors=all: an error response lists up to 100 validation errors in errors; errorsOmitted counts further ones. receipt: a 200 has a receipt.',
  'header',
);
const unknownHeader = {
  'X-Unknown-Parameters': {
    description: 'Names of ignored parameters, of the query and the body, up to ten.',
    schema: { type: 'string', maxLength: 200 },
  },
};
const accepted = json('Every event of the request is stored; with validate=1, it could be.', reference('Accepted'), {
  headers: {
    ...unknownHeader,
    'Preference-Applied': { description: 'receipt, if the response has one.', schema: text },
  },
});

function describeMethod(kind: EventKind, batch: boolean): OpenApiObject {
  const schema = reference(schemaNameOf(kind));
  const refused = describeRefusals();
  const applied = { description: 'errors=all, if the response has the list.', schema: text };
  const headers = { 'X-Error-Detail': detailHeader, ...unknownHeader, 'Preference-Applied': applied };
  return {
    tags,
    summary: `Import ${batch ? `1 to ${maxBatchEvents} events` : 'one event'} of the kind ${kind}`,
    security: [{ importToken: [] }],
    parameters: [idApp, validate, idempotencyKey, prefer],
    requestBody: {
      required: true,
      description: `At most ${maxBodyBytes} bytes, gzip allowed. The Content-Type is ignored.`,
      content: {
        'application/json': {
          schema: batch ? { type: 'array', minItems: 1, maxItems: maxBatchEvents, items: schema } : schema,
        },
      },
    },
    responses: { '200': accepted, ...refused, '400': { ...refused['400'], headers } },
  };
}

const versionAnswer = json('The version of the service.', object({ version: text }));

const answerSchemas = {
  Accepted: object({
    message: choice(['Ok', 'Valid, nothing was stored']),
    'receipt?': reference('Receipt'),
  }),
  Receipt: receiptSchema,
  ImportError: describeFormerNames(
    'errors',
    object(
      {
        error: choice([...new Set(refusalReasons.map((reason) => answerOf(reason).error))]),
        'errors?': listOf(fault, 'Validation errors; only with Prefer: errors=all.'),
        'errorsOmitted?': { type: 'integer', minimum: 1, description: 'Number of further validation errors.' },
      },
      { additionalProperties: false },
    ),
  ),
};

/** Describes the import area from the schemas that validate and the table of refusals. */
export function describeImport(): OpenApiPart {
  const { '403': forbidden, '500': failed } = describeRefusals();
  return {
    area: 'import',
    paths: {
      ...Object.fromEntries(
        [...importMethods].map(([name, { kind, batch }]) => [`/v1/${name}/`, { post: describeMethod(kind, batch) }]),
      ),
      '/v1/event': { get: describeEventLookup(describeReasons(lookupRefusals)) },
      '/v1/events': { post: describeEventsLookup(describeReasons(eventsRefusals)) },
      '/v1/version': {
        post: { tags, summary: 'Get the version of the service', security: [], responses: { '200': versionAnswer } },
      },
      '/v1/receipt-key': { get: receiptKey },
      '/v1/test-app-access/': {
        post: {
          tags,
          summary: 'Check an import token',
          security: [{ importToken: [] }],
          parameters: [idApp],
          requestBody: { required: false, content: { 'application/json': { schema: { type: 'boolean' } } } },
          responses: {
            '200': { ...accepted, description: 'The token is valid for the app.' },
            '403': forbidden,
            '500': failed,
          },
        },
      },
    },
    examples: importExamples,
    components: {
      schemas: {
        ...Object.fromEntries([...importKinds.keys()].map((kind) => [schemaNameOf(kind), describeKind(kind)])),
        ...lookupSchemas,
        ...answerSchemas,
      },
      securitySchemes: {
        importToken: {
          type: 'apiKey',
          in: 'header',
          name: 'Authorization',
          description: 'The token itself, without a scheme word.',
        },
      },
    },
  };
}
