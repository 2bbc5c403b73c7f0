/** The API reference on an account: apps and their data. */
import { membersOf } from '../../runtime/files/checksummed-json.ts';
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
import { activityDays } from '../jobs/worker-messages.ts';
import { dataKinds, maxDates } from './data-routes.ts';
import { appExamples, dataExamples } from './openapi-examples.ts';
import { members } from './openapi-schemas.ts';
import { method, notFoundResponse, retryAfter } from './openapi.ts';

const upTo = (maximum: number, more: Schema = {}): Schema => ({ type: 'integer', minimum: 1, maximum, ...more });

export const pageArguments: readonly Schema[] = [
  parameter('search?', text, 'Text to find in the title, name or id.'),
  parameter('offset?', { ...count, default: 0 }, 'Number of skipped items.'),
  parameter('limit?', upTo(1000, { default: 100 }), 'Maximum number of items.'),
];

function describeApps(): Record<string, Schema> {
  const idApp = parameter('idApp', text, "An app of the caller's account.");
  const list = object({
    refusals: listOf(reference('Refusal')),
    'hostsWithoutAnswer?': note(listOf(text), 'Hosts that did not answer, which may have more.'),
  });
  const live = method('Stream the events and rejected requests of an app.', [idApp], {}, notFoundResponse);
  const why = 'The broker is not reachable, or denies access to the live subjects.';
  const away = json(why, reference('ExportRefusal'), { headers: retryAfter });
  const events = {
    description: 'Server-sent events, as GET /v1/live of the import area has them.',
    content: { 'text/event-stream': { schema: text } },
  };
  const parameters = [idApp, parameter('limit?', upTo(1000))];
  return {
    '/api/app/v1/refusals.json': {
      get: method('List the newest rejected requests of an app.', parameters, list, notFoundResponse),
    },
    '/api/app/v1/live': { get: { ...live, responses: { ...membersOf(live['responses']), 200: events, 503: away } } },
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
  'lastDate?': note(date, 'Newest date on which the condition held.'),
  'isResolved?': note(flag, 'Whether the notice is resolved.'),
};
export const notice = describeFormerNames('notice', object(noticeMembers));

function describeCatalogue(): Record<string, Schema> {
  const seen = { firstSeen: moment, lastSeen: moment };
  const parameterMembers = {
    name: text,
    type: choice(parameterTypes),
    seen: count,
    distinctValues: note(count, 'Approximate number of distinct values.'),
    untyped: note(count, 'Non-empty values of another type; NULL in views.sql.'),
    types: object(members(count, ...parameterTypes)),
    examples: listOf(text),
    ...seen,
  };
  const described = describeFormerNames('parameter', object(parameterMembers));
  const eventMembers = {
    customEventName: text,
    events: note(count, 'Events of the given dates; of all dates by default.'),
    sealed: note(count, 'Sealed events of all dates; parameters are counted in them.'),
    sampledEvents: note(count, 'Sealed events that were searched for parameters.'),
    moreParameters: count,
    ...seen,
    days: listOf(object({ date, events: count })),
    'parameters?': listOf(described, 'Absent if customEventName is not given.'),
  };
  const event = describeFormerNames('event', object(eventMembers));
  const catalogueMembers = {
    'version?': note(text, 'Version of the data; absent until the catalogue is built.'),
    isComplete: note(flag, 'Whether every event of the dates is counted.'),
    'sealedUntil?': note(moment, 'Events available before it are sealed; absent if no event of the dates is unsealed.'),
    missingFiles: count,
    customEvents: listOf(event),
    more: object(members(count, 'names', 'events')),
    notices: listOf(notice),
  };
  const catalogue = describeFormerNames('catalogue', object(catalogueMembers));
  const parameters = [
    parameter('idApp', text, "An app of the caller's account."),
    parameter('customEventName?', text, 'Custom event to list the parameters of.'),
    parameter('dateFrom?', text, 'First UTC date to count.'),
    parameter('dateTo?', text, 'Last UTC date to count.'),
    parameter(
      'days?',
      { type: 'integer', minimum: 0, maximum: 400, default: 400 },
      'Number of newest dates per event.',
    ),
  ];
  const get = method(
    'List the custom events of an app, or get one with its parameters.',
    parameters,
    catalogue,
    notFoundResponse,
  );
  return { '/api/catalogue/v1/get.json': { get, post: get } };
}

const appMembers = { idApp: text, title: text, platform: choice(platforms), 'idProject?': text };

function describeActivity(): Schema {
  const kinds = listOf(object({ kind: choice(dataKinds), events: count, lastDate: date }), 'Most frequent first.');
  const activeApp = object({
    ...appMembers,
    events: note(count, 'All events of the app.'),
    'firstDate?': note(date, 'UTC date of the first event; absent if there is none.'),
    'lastDate?': note(date, 'UTC date of the newest event.'),
    days: listOf(count, `Events of each of the ${activityDays} days up to lastDate.`),
    kinds,
  });
  return object({
    apps: listOf(activeApp, 'Most events first.'),
    total: count,
    events: note(count, 'Events of all apps.'),
    'lastDate?': note(date, 'UTC date of the newest event; absent if there is none.'),
    kinds,
    isComplete: note(flag, 'Whether all events are counted.'),
    'countedFrom?': note(date, 'Date from which all events are counted; absent if the count is complete.'),
  });
}

function describeData(): Record<string, Schema> {
  const dates = [
    parameter('dateFrom?', date, 'First UTC date. Default without both: the last 30 days.'),
    parameter('dateTo?', date, `Last UTC date, inclusive; the span is at most ${maxDates} days.`),
  ];
  const app = object(appMembers);
  const volume = object({
    version: note(text, 'Counted version of the events table.'),
    dateFrom: date,
    dateTo: date,
    days: listOf(object({ date, kind: choice(dataKinds), events: count }), 'Days and kinds without events are absent.'),
  });
  const fieldMembers = {
    ...members(text, 'name', 'column', 'type', 'description'),
    nonNullEvents: note(count, 'Sampled events that have a value other than the default.'),
    'default?': { type: 'number', description: 'Value stored if the client sends none; absent if there is none.' },
  };
  const field = describeFormerNames('field', object(fieldMembers));
  const fieldsMembers = {
    version: text,
    kind: choice(dataKinds),
    sampledEvents: note(count, 'Examined events: the newest of the dates, about 20 million rows at most.'),
    'dateFrom?': date,
    'dateTo?': date,
    isComplete: note(flag, 'Whether every event of the dates was examined.'),
    fields: listOf(field),
  };
  const fields = describeFormerNames('fields', object(fieldsMembers));
  const kind = parameter('kind', choice(dataKinds), 'Event kind or dataset.');
  const idApp = parameter('idApp', text, "An app of the caller's account.");
  const anyApp = parameter('idApp?', text, "An app of the caller's account; all by default.");
  const apps = object({ apps: listOf(app), total: count });
  return {
    '/api/data/v1/apps.json': {
      get: method('List the apps of the account.', [anyApp, ...pageArguments], apps, notFoundResponse),
    },
    '/api/data/v1/activity.json': {
      get: method(
        'Get the events of each app, its newest day and its kinds.',
        [anyApp, ...pageArguments],
        describeActivity(),
        notFoundResponse,
      ),
    },
    '/api/data/v1/volume.json': {
      get: method('Get event counts by day and kind.', [anyApp, ...dates], volume, notFoundResponse),
    },
    '/api/data/v1/fields.json': {
      get: method('Get field fill rates of an event kind.', [idApp, kind, ...dates], fields, notFoundResponse),
    },
  };
}

export function describeAccountApi(): OpenApiPart {
  return {
    area: 'export',
    paths: { ...describeCatalogue(), ...describeApps(), ...describeData() },
    examples: { ...appExamples, ...dataExamples },
    components: { schemas: {}, securitySchemes: {} },
  };
}
