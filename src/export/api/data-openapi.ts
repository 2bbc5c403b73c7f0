import { platforms } from '../../datasets/field-schema.ts';
import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { dataExamples } from './data-openapi-examples.ts';
import { dataKinds, mostDates } from './data-routes.ts';
import { count, method, notFound, object, text, type Schema } from './openapi.ts';

/** A date of the calendar. */
const date: Schema = { type: 'string', format: 'date' };

/** An argument in the query. */
export const argument = (name: string, required: boolean, description: string, schema: Schema = text): Schema => ({
  name,
  in: 'query',
  required,
  description,
  schema,
});

/** Which part of a list is wanted. */
export const pageArguments: readonly Schema[] = [
  argument('search', false, 'Those whose title or name, or id, has this text.'),
  argument('offset', false, 'How many are left out before the first.', { ...count, default: 0 }),
  argument('limit', false, 'How many are answered.', { type: 'integer', minimum: 1, maximum: 1000, default: 100 }),
];

const dates: readonly Schema[] = [
  argument('dateFrom', false, 'The first UTC date; the last 30 without both.', date),
  argument('dateTo', false, `The last UTC date; at most ${mostDates} days.`, date),
];

/** The part of the API reference on what data an account has. */
export function describeDataApi(): OpenApiPart {
  const app = object({ idApp: text, title: text, platform: { type: 'string', enum: platforms }, idProject: text }, [
    'idApp',
    'title',
    'platform',
  ]);
  const apps = object({ apps: { type: 'array', items: app }, total: count });
  const day = object({ date, kind: { type: 'string', enum: dataKinds }, events: count });
  const volume = object({
    version: { ...text, description: 'Version of the table of events that was counted.' },
    dateFrom: date,
    dateTo: date,
    days: { type: 'array', items: day, description: 'A day and kind without events has no line.' },
  });
  const field = object(
    {
      name: text,
      column: text,
      type: text,
      description: text,
      filled: {
        ...count,
        description: 'Of the events that were looked at, those that have a value other than the default.',
      },
      default: { type: 'number', description: 'The value stored if none was sent; absent if there is none.' },
    },
    ['name', 'column', 'type', 'description', 'filled'],
  );
  const fields = object(
    {
      version: text,
      kind: { type: 'string', enum: dataKinds },
      looked: { ...count, description: 'The newest events of those dates, in files of about twenty million rows.' },
      dateFrom: date,
      dateTo: date,
      isWhole: { type: 'boolean', description: 'Every event of the dates was looked at.' },
      fields: { type: 'array', items: field },
    },
    ['version', 'kind', 'looked', 'isWhole', 'fields'],
  );
  const kind = argument('kind', true, 'The kind of event, or the dataset.', { type: 'string', enum: dataKinds });
  const idApp = (required: boolean): Schema =>
    argument('idApp', required, `An app of the caller's account${required ? '' : '; all of them without it'}.`);
  return {
    area: 'export',
    paths: {
      '/api/data/v1/apps.json': {
        get: method('The apps of the account.', [idApp(false), ...pageArguments], apps, notFound),
      },
      '/api/data/v1/volume.json': {
        get: method('Events by day and kind.', [idApp(false), ...dates], volume, notFound),
      },
      '/api/data/v1/fields.json': {
        get: method('How full the fields of a kind of event are.', [idApp(true), kind, ...dates], fields, notFound),
      },
    },
    examples: dataExamples,
    components: { schemas: {}, securitySchemes: {} },
  };
}
