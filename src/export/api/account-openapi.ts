/** The API reference on an account: apps and their data, webhooks and their messages. */
import { platforms } from '../../datasets/field-schema.ts';
import { noticeKinds } from '../../lake/catalogue/catalogue-files.ts';
import { parameterTypes } from '../../lake/catalogue/parameter-types.ts';
import { describeFormerNames } from '../../runtime/former-names.ts';
import {
  type OpenApiPart,
  type Schema,
  choice,
  count,
  date,
  flag,
  json,
  listOf,
  moment,
  note,
  object,
  parameter,
  reference,
  text,
} from '../../runtime/http/openapi.ts';
import { dataKinds, mostDates } from './data-routes.ts';
import { appExamples, dataExamples, webhookExamples } from './openapi-examples.ts';
import { members, slot } from './openapi-schemas.ts';
import { method, notFound, retryAfter } from './openapi.ts';

const upTo = (maximum: number, more: Schema = {}): Schema => ({ type: 'integer', minimum: 1, maximum, ...more });

/** The parameters of a page of a list. */
export const pageArguments: readonly Schema[] = [
  parameter('search?', text, 'Those whose title or name, or id, has this text.'),
  parameter('offset?', { ...count, default: 0 }, 'How many are left out before the first.'),
  parameter('limit?', upTo(1000, { default: 100 }), 'How many are answered.'),
];

function describeApps(): Record<string, Schema> {
  const idApp = parameter('idApp', text, "An app of the caller's account.");
  const list = object({ refusals: listOf(reference('Refusal')) });
  const live = method('The events and refusals of an app, as they arrive.', [idApp], {}, notFound);
  const why = 'The broker is away, or denies the service what is shown.';
  const away = json(why, reference('ExportRefusal'), { headers: retryAfter });
  const events = {
    description: 'Server-sent events, as GET /v1/live of the import area has them.',
    content: { 'text/event-stream': { schema: text } },
  };
  const given = [idApp, parameter('limit?', upTo(1000))];
  return {
    '/api/app/v1/refusals.json': {
      get: method('What of an app was refused lately, and why, newest first.', given, list, notFound),
    },
    '/api/app/v1/live': { get: { ...live, responses: { ...(live['responses'] as Schema), 200: events, 503: away } } },
  };
}

const noticeMembers = {
  id: text,
  kind: choice(noticeKinds),
  idApp: count,
  'customEventName?': text,
  'parameter?': text,
  date,
  foundAt: moment,
  what: text,
  'lastDate?': note(date, 'The newest date by which it was so still.'),
  'isResolved?': note(flag, 'Whether the notice is resolved.'),
};
const notice = describeFormerNames('notice', object(noticeMembers));

function describeCatalogue(): Record<string, Schema> {
  const seen = { firstSeen: moment, lastSeen: moment };
  const parameterMembers = {
    name: text,
    type: choice(parameterTypes),
    seen: count,
    distinctValues: note(count, 'Approximate number of distinct values.'),
    untyped: note(count, 'Values of another type, empty ones aside: NULL in views.sql.'),
    types: object(members(count, ...parameterTypes)),
    examples: listOf(text),
    ...seen,
  };
  const described = describeFormerNames('parameter', object(parameterMembers));
  const eventMembers = {
    customEventName: text,
    events: note(count, 'Of the given dates; of all dates without them.'),
    sealed: note(count, 'Of all dates, those that parameters are counted in.'),
    sampledEvents: note(count, 'Sealed events that were searched for parameters.'),
    moreParameters: count,
    ...seen,
    days: listOf(object({ date, events: count })),
    'parameters?': listOf(described, 'Where customEventName is given.'),
  };
  const event = describeFormerNames('event', object(eventMembers));
  const catalogueMembers = {
    'version?': note(text, 'Version of the data; without it, there is no catalogue yet.'),
    isComplete: note(flag, 'Whether every event of the dates is counted.'),
    'sealedUntil?': note(moment, 'Events available before it are sealed; absent if no event of the dates is unsealed.'),
    missingFiles: count,
    customEvents: listOf(event),
    more: object(members(count, 'names', 'events')),
    notices: listOf(notice),
  };
  const catalogue = describeFormerNames('catalogue', object(catalogueMembers));
  const given = [
    parameter('idApp', text, 'The app, of the account.'),
    parameter('customEventName?', text, 'The custom event whose parameters are wanted.'),
    parameter('dateFrom?', text, 'The first UTC date whose events are counted.'),
    parameter('dateTo?', text, 'The last one.'),
    parameter(
      'days?',
      { type: 'integer', minimum: 0, maximum: 400, default: 400 },
      'How many dates of each event, the newest.',
    ),
  ];
  const get = method('The custom events of an app, or one of them with its parameters.', given, catalogue, notFound);
  return { '/api/catalogue/v1/get.json': { get, post: get } };
}

function describeData(): Record<string, Schema> {
  const dates = [
    parameter('dateFrom?', date, 'The first UTC date; the last 30 without both.'),
    parameter('dateTo?', date, `The last UTC date; at most ${mostDates} days.`),
  ];
  const app = object({ idApp: text, title: text, platform: choice(platforms), 'idProject?': text });
  const volume = object({
    version: note(text, 'Version of the table of events that was counted.'),
    dateFrom: date,
    dateTo: date,
    days: listOf(
      object({ date, kind: choice(dataKinds), events: count }),
      'A day and kind without events has no line.',
    ),
  });
  const fieldMembers = {
    ...members(text, 'name', 'column', 'type', 'description'),
    nonNullEvents: note(count, 'Sampled events that have a value other than the default.'),
    'default?': { type: 'number', description: 'The value stored if none was sent; absent if there is none.' },
  };
  const field = describeFormerNames('field', object(fieldMembers));
  const fieldsMembers = {
    version: text,
    kind: choice(dataKinds),
    sampledEvents: note(count, 'Examined events: the newest of the dates, in files of about twenty million rows.'),
    'dateFrom?': date,
    'dateTo?': date,
    isComplete: note(flag, 'Whether every event of the dates was examined.'),
    fields: listOf(field),
  };
  const fields = describeFormerNames('fields', object(fieldsMembers));
  const kind = parameter('kind', choice(dataKinds), 'The kind of event, or the dataset.');
  const idApp = parameter('idApp', text, "An app of the caller's account.");
  const anyApp = parameter('idApp?', text, "An app of the caller's account; all of them without it.");
  const apps = object({ apps: listOf(app), total: count });
  return {
    '/api/data/v1/apps.json': {
      get: method('The apps of the account.', [anyApp, ...pageArguments], apps, notFound),
    },
    '/api/data/v1/volume.json': { get: method('Events by day and kind.', [anyApp, ...dates], volume, notFound) },
    '/api/data/v1/fields.json': {
      get: method('How full the fields of a kind of event are.', [idApp, kind, ...dates], fields, notFound),
    },
  };
}

const endedExportMembers = {
  ...members(text, 'idRawExport', 'idReportFile', 'event', 'status'),
  ...slot,
  'errorMessage?': text,
  ...members(count, 'files?', 'rows?', 'bytes?'),
  'version?': text,
  'nextSinceVersion?': text,
};
const endedExport = describeFormerNames('export', object(endedExportMembers));

const describeMessage = (types: readonly string[], data: Schema): Schema =>
  object({ id: text, type: choice(types), timestamp: moment, data });

const message = {
  '{$request.query.url}': {
    post: {
      summary: 'An export of the account has ended, or the catalogue has noticed something in one of its apps.',
      parameters: ['webhook-id', 'webhook-timestamp', 'webhook-signature'].map((name) =>
        parameter(name, text, undefined, 'header'),
      ),
      requestBody: {
        required: true,
        content: {
          'application/json': {
            schema: {
              oneOf: [
                describeMessage(['export.finished', 'export.failed'], endedExport),
                describeMessage(['catalogue.notice'], notice),
              ],
            },
          },
        },
      },
      responses: {
        '2XX': { description: 'Taken; after anything else but 410 the message comes again.' },
        410: { description: 'The message does not come again.' },
      },
    },
  },
};

function describeWebhooks(): Record<string, Schema> {
  const webhook = { idWebhook: text, url: { type: 'string', format: 'uri' }, timestampCreated: text };
  const itemMembers = {
    ...webhook,
    'timestampLastAttempt?': note(text, 'Time of the last delivery attempt since the service started, Unix seconds.'),
    'lastError?': note(text, 'Error of that attempt; absent if it was acknowledged.'),
  };
  const items = describeFormerNames('webhook', object(itemMembers));
  const damaged = listOf(text, 'Ids of those whose records are damaged: they are told nothing.');
  const secret = note(text, 'The messages are signed with it; told once.');
  const summary = 'Have the ended exports of the account, and notices of the catalogue, told to an address.';
  const create = method(summary, [parameter('url', text)], object({ ...webhook, secret }));
  const list = object({ webhooks: listOf(items), 'damaged?': damaged });
  const removed = object({ idWebhook: text });
  return {
    '/api/webhook/v1/create.json': { post: { ...create, callbacks: { message } } },
    '/api/webhook/v1/list.json': { get: method('The webhooks of the account.', [], list) },
    '/api/webhook/v1/delete.json': {
      post: method('Remove a webhook.', [parameter('idWebhook', text)], removed, notFound),
    },
  };
}

export function describeAccountApi(): OpenApiPart {
  return {
    area: 'export',
    paths: { ...describeWebhooks(), ...describeCatalogue(), ...describeApps(), ...describeData() },
    examples: { ...webhookExamples, ...appExamples, ...dataExamples },
    components: { schemas: {}, securitySchemes: {} },
  };
}
