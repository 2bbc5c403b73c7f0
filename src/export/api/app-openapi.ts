import { noticeKinds } from '../../lake/catalogue/notices-file.ts';
import { parameterTypes } from '../../lake/catalogue/parameter-types.ts';
import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { appExamples } from './openapi-examples.ts';
import { count, json, method, notFound, object, reference, retryAfter, text, type Schema } from './openapi.ts';

const argument = (name: string, required: boolean, description: string): Schema => ({
  name,
  in: 'query',
  required,
  description,
  schema: text,
});

/** What users see of what comes in for their apps. The records are those of the import area. */
function describeApps(): Record<string, Schema> {
  const idApp = argument('idApp', true, "An app of the caller's account.");
  const limit = { name: 'limit', in: 'query', required: false, schema: { type: 'integer', minimum: 1, maximum: 1000 } };
  const list = object({ refusals: { type: 'array', items: reference('Refusal') } });
  const live = method('The events and refusals of an app, as they arrive.', [idApp], {}, notFound);
  const away = {
    ...json('The broker is away, or denies the service what is shown.', reference('ExportRefusal')),
    headers: retryAfter,
  };
  const events = {
    description: 'Server-sent events, as GET /v1/live of the import area has them.',
    content: { 'text/event-stream': { schema: text } },
  };
  return {
    '/api/app/v1/refusals.json': {
      get: method('What of an app was refused lately, and why, newest first.', [idApp, limit], list, notFound),
    },
    '/api/app/v1/live': { get: { ...live, responses: { ...(live['responses'] as Schema), 200: events, 503: away } } },
  };
}

const counted = (names: readonly string[]): Record<string, Schema> =>
  Object.fromEntries(names.map((name) => [name, count]));
/** A time, ISO 8601. */
export const moment: Schema = { type: 'string', format: 'date-time' };

/** A notice of the catalogue. */
export const notice = object(
  {
    id: text,
    kind: { type: 'string', enum: noticeKinds },
    idApp: count,
    customEventName: text,
    parameter: text,
    date: { type: 'string', format: 'date' },
    foundAt: moment,
    what: text,
    lastDate: { type: 'string', format: 'date', description: 'The newest date by which it was so still.' },
    isOver: { type: 'boolean', description: 'It is so no more; absent otherwise.' },
  },
  ['id', 'kind', 'idApp', 'date', 'foundAt', 'what'],
);

/** What the custom events of an app have in their parameters. */
function describeCatalogue(): Record<string, Schema> {
  const seen = { firstSeen: moment, lastSeen: moment };
  const parameter = object({
    name: text,
    type: { type: 'string', enum: parameterTypes },
    ...counted(['seen', 'values']),
    untyped: { ...count, description: 'Values of another type, empty ones aside: NULL in views.sql.' },
    types: object(counted(parameterTypes)),
    examples: { type: 'array', items: text },
    ...seen,
  });
  const event = object(
    {
      customEventName: text,
      events: { ...count, description: 'Of the given dates; of all dates without them.' },
      sealed: { ...count, description: 'Of all dates, those that parameters are counted in.' },
      looked: { ...count, description: 'Of the sealed ones, those that were looked at for parameters.' },
      moreParameters: count,
      ...seen,
      days: { type: 'array', items: object({ date: { type: 'string', format: 'date' }, events: count }) },
      parameters: { type: 'array', items: parameter, description: 'Where customEventName is given.' },
    },
    ['customEventName', 'events', 'sealed', 'looked', 'firstSeen', 'lastSeen', 'moreParameters', 'days'],
  );
  const catalogue = object(
    {
      version: { ...text, description: 'Version of the data; without it, there is no catalogue yet.' },
      isWhole: { type: 'boolean', description: 'Whether every event of the dates is counted.' },
      sealedUntil: {
        ...moment,
        description: 'Events available before it are sealed; absent if no event of the dates is unsealed.',
      },
      missingFiles: count,
      customEvents: { type: 'array', items: event },
      more: object(counted(['names', 'events'])),
      notices: { type: 'array', items: notice },
    },
    ['isWhole', 'missingFiles', 'customEvents', 'more', 'notices'],
  );
  const given = [
    argument('idApp', true, 'The app, of the account.'),
    argument('customEventName', false, 'The custom event whose parameters are wanted.'),
    argument('dateFrom', false, 'The first UTC date whose events are counted.'),
    argument('dateTo', false, 'The last one.'),
    {
      ...argument('days', false, 'How many dates of each event, the newest.'),
      schema: { type: 'integer', minimum: 0, maximum: 400, default: 400 },
    },
  ];
  const get = method('The custom events of an app, or one of them with its parameters.', given, catalogue, notFound);
  return { '/api/catalogue/v1/get.json': { get, post: get } };
}

/** The part of the API reference on what users see of their account's apps. */
export function describeAppApi(): OpenApiPart {
  return {
    area: 'export',
    paths: { ...describeCatalogue(), ...describeApps() },
    examples: appExamples,
    components: { schemas: {}, securitySchemes: {} },
  };
}
