import { dictionaryNames } from '../../datasets/dictionaries.ts';
import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { formatNames } from '../../datasets/file-formats.ts';
import { listParameters, listSchemas, listSummary } from './list-schemas.ts';
import { exportExamples } from './openapi-examples.ts';
import { lookSchemas } from './look-schemas.ts';
import { manifestSchema } from './manifest-openapi.ts';
import { customEvents, parameters, paramRule, setSizeLimit, type Parameter } from './parameters.ts';

/** A part of an OpenAPI document. */
export type Schema = Readonly<Record<string, unknown>>;

/** The schema of a text. */
export const text: Schema = { type: 'string' };
/** A whole number from 0 on. */
export const count: Schema = { type: 'integer', minimum: 0 };
const security = [{ basic: [] }, { authHmac: [] }];

export function reference(name: string): Schema {
  return { $ref: `#/components/schemas/${name}` };
}

/** The schema of an object; all members are required unless some are named. */
export function object(
  properties: Readonly<Record<string, Schema>>,
  required: readonly string[] = Object.keys(properties),
): Schema {
  return { type: 'object', required, properties };
}

function envelope(data: Schema): Schema {
  return object({ code: { type: 'integer', const: 200 }, message: { type: 'string', const: 'Ok' }, data });
}

export function json(description: string, schema: Schema): Schema {
  return { description, content: { 'application/json': { schema } } };
}

export const retryAfter = { 'Retry-After': { description: 'Seconds to wait.', schema: count } };
const overQuota = { ...json('A quota is used up.', reference('ExportRefusal')), headers: retryAfter };
const refusals = {
  400: json('Something is wrong with the arguments; data.error.detail names what.', reference('ExportRefusal')),
  403: json('Authorization is missing or wrong.', reference('AccessDenied')),
  429: overQuota,
  500: { ...json('The service cannot do it now.', reference('Failed')), headers: retryAfter },
};
/** The answer of a method about what is not there. */
export const notFound = {
  404: json(
    "The request does not exist, is not of the caller's account, or its links have ended.",
    reference('ExportRefusal'),
  ),
};

function schemaOf({ shape }: Parameter): Schema {
  return shape === 'one' ? text : { type: 'array', items: text, maxItems: setSizeLimit - 1 };
}

/** Describes a parameter of the create call. */
export function describeParameter(parameter: Parameter): Schema {
  const { name, meaning, shape, rule, events } = parameter;
  const notes = [
    meaning,
    `Allowed: ${rule.allowed}.`,
    ...(shape === 'set' ? ['As a,b or repeated.'] : []),
    ...(events === undefined ? [] : [`Only for ${events.join(', ')}.`]),
  ];
  return {
    name,
    in: 'query',
    required: name === 'event' || name === 'selectors',
    description: notes.join(' '),
    schema: schemaOf(parameter),
    ...(shape !== 'one' ? { style: 'form', explode: shape === 'list' } : {}),
  };
}

/**
 * `params[NAME]=value`, which no row of the table can be: its name is the caller's. Written as the members of an object,
 * whose own name is not sent: generators of clients break over a parameter that is called `params`.
 */
export const paramsParameter: Schema = {
  name: 'paramsFilter',
  in: 'query',
  required: false,
  style: 'form',
  explode: true,
  description: `Parameters of custom events, as params[level]=3: each must have one of its values. The names are sent as they are, with their brackets, and paramsFilter is not. Names and values: ${paramRule.allowed}. Only for ${customEvents.join(', ')}.`,
  schema: { type: 'object', additionalProperties: { type: 'array', items: text } },
};

function idParameter(name: string): Schema {
  return {
    name,
    in: 'query',
    required: true,
    description: 'Identifier that create answered.',
    schema: { type: 'string', pattern: '^[1-9][0-9]*$' },
  };
}

/** Describes a method of the area: its parameters, the data of its answer, and answers beside those of all. */
export function method(summary: string, given: readonly Schema[], data: Schema, others: Schema): Schema {
  return {
    summary,
    tags: ['Export'],
    security,
    parameters: given,
    responses: { 200: json('Done.', envelope(data)), ...refusals, ...others },
  };
}

const link = {
  link: { type: 'string', format: 'uri' },
  timestampExpires: { type: 'string', description: 'Unix seconds: until then the link works.' },
};
const files = {
  type: 'array',
  items: object({
    ...link,
    rows: count,
    bytes: count,
    sha256: { type: 'string', description: 'Of the file as it is downloaded, hex.' },
  }),
};
const progress = { type: 'string', pattern: '^[0-9]{1,2}%$', description: 'While in progress.' };

/** What is said of an export that a schedule has made. */
export const slot = {
  idSchedule: { ...text, description: 'The schedule that has made it.' },
  slot: {
    type: 'string',
    pattern: String.raw`^\d{4}-\d{2}-\d{2}(T\d{2}Z)?$`,
    description:
      'Its slot in that schedule: the date (YYYY-MM-DD), of an hourly schedule the hour in UTC (YYYY-MM-DDTHHZ).',
  },
  // No `const: true`, of which generators of clients make broken programs.
  slotMayLackEvents: {
    type: 'boolean',
    description: 'true: events that were acknowledged before the end of its period may be missing.',
  },
};

/** What is said of the files of a finished export, and of the version of the data that it was read from. */
const basis = {
  format: { type: 'string', enum: formatNames },
  hasHeader: { type: 'boolean', description: 'Whether each file begins with a line of column names.' },
  manifest: { ...object(link), description: 'Leads to the signed record of the export, a Manifest.' },
  version: text,
  nextSinceVersion: text,
  timestampKeptUntil: {
    type: 'string',
    description:
      'Unix seconds: until then the same request with asOf gives the same bytes, unless an erasure has taken rows of its apps, or one that waits for no reader has ended every older version.',
  },
  timestampWatermark: {
    type: 'string',
    description: 'Unix seconds: what was acknowledged before is in the version. Absent where that is not known.',
  },
};

const schemas: Readonly<Record<string, Schema>> = {
  ...lookSchemas,
  AccessDenied: object({
    code: { type: 'integer', const: 403 },
    message: { type: 'string', const: 'Access denied' },
    data: { type: 'null' },
  }),
  ExportRefusal: object({
    code: { type: 'integer' },
    message: text,
    data: object({
      error: object(
        { detail: text, info: object({ exports: { type: 'array', items: object({ idRawExport: text }) } }) },
        ['detail'],
      ),
    }),
  }),
  Failed: object({ code: { type: 'integer', const: 500 }, message: text, data: { type: ['object', 'null'] } }),
  ReportFile: object(
    {
      idReportFile: text,
      status: { type: 'string', enum: ['In progress', 'Error occurred', 'Success!'] },
      progress,
      files,
      archive: object(link),
      ...basis,
    },
    ['idReportFile', 'status'],
  ),
  RawExport: object(
    {
      idRawExport: text,
      idReportFile: text,
      status: {
        type: 'string',
        enum: ['In progress', 'Error occurred', 'Success!', 'User error occurred', 'Canceled by user'],
      },
      ...slot,
      isCancellable: { type: 'boolean', description: 'true while in progress.' },
      errorMessage: text,
      progress,
      files,
      archive: object(link),
      ...basis,
    },
    ['idRawExport', 'idReportFile', 'status'],
  ),
  ReportSummary: object(
    {
      idReportFile: text,
      idRawExport: text,
      event: text,
      status: text,
      ...slot,
      timestampCreated: text,
      progress,
      errorMessage: text,
      timestampExpires: text,
      files: count,
      rows: count,
      bytes: count,
    },
    ['idReportFile', 'idRawExport', 'event', 'status', 'timestampCreated'],
  ),
  Manifest: manifestSchema,
  ...listSchemas,
};

const download = {
  summary: 'Download a file, the archive of all files or the manifest by its signed link.',
  tags: ['Export'],
  security: [],
  parameters: [
    { name: 'id', in: 'path', required: true, schema: text },
    { name: 'name', in: 'path', required: true, schema: text },
    ...['expires', 'kid', 'signature', 'user', 'x-ending'].map((name) => ({
      name,
      in: 'query',
      required: !['user', 'x-ending'].includes(name),
      schema: text,
    })),
    ...['Range', 'If-Range', 'If-Match', 'If-None-Match'].map((name) => ({
      name,
      in: 'header',
      required: false,
      schema: text,
    })),
  ],
  responses: {
    200: {
      description:
        'The file: text/csv, application/jsonl, application/gzip, application/zstd, application/vnd.apache.parquet or application/zip; a Manifest is application/json.',
    },
    206: { description: 'The part of the file that Range asked for.' },
    304: { description: 'The file is the one of If-None-Match.' },
    403: json(
      'The link was not signed here, or it has ended, or the user whom it was given to was removed or has a new secret.',
      reference('AccessDenied'),
    ),
    404: json('The request is gone.', reference('ExportRefusal')),
    412: json('The file is none of those that If-Match names.', reference('ExportRefusal')),
    416: { description: 'Range lies beyond the file.' },
    500: json('The file is damaged on the disk of the service: create the export again.', reference('Failed')),
  },
};

const manifestKey = {
  summary: 'The public key of the manifests.',
  tags: ['Export'],
  security: [],
  responses: { 200: json('Done.', envelope(object({ algorithm: { type: 'string', const: 'Ed25519' }, key: text }))) },
};

const texts: Schema = { type: 'object', additionalProperties: text };
/** What a dictionary is; most have a text for each value. */
const dictionarySchemas: Readonly<Record<string, Schema>> = {
  events: { type: 'object', additionalProperties: { type: 'array', items: text } },
  selectors: { type: 'array', items: object({ name: text, type: text, meaning: text }) },
  timezones: { type: 'array', items: text },
};

function describeDictionary(name: string): Schema {
  return {
    summary: `The ${name} dictionary.`,
    tags: ['Dictionaries'],
    security: [],
    responses: { 200: json('Done.', envelope(dictionarySchemas[name] ?? texts)), 429: overQuota },
  };
}

/** A form body takes the same parameters as the query, so that none of them has to stand in the query. */
const formBody = {
  description: 'The parameters may stand in the query, in a form body, or in both. The Content-Type is not looked at.',
  parameters: [
    ...parameters.map((parameter) => ({ ...describeParameter(parameter), required: false })),
    paramsParameter,
  ],
  requestBody: {
    required: false,
    content: {
      'application/x-www-form-urlencoded': {
        schema: object(Object.fromEntries(parameters.map((parameter) => [parameter.name, schemaOf(parameter)])), []),
      },
    },
  },
};

/** The methods that say what an export would be: they take what create takes. */
function describeLooks(given: readonly Schema[]): Record<string, Schema> {
  const estimate = method('What an export would be: rows, bytes, files, time.', given, reference('Estimate'), {});
  const preview = method('The first twenty rows of an export.', given, reference('Preview'), {});
  return {
    '/api/raw/v1/export/estimate.json': { get: estimate, post: { ...estimate, ...formBody } },
    '/api/raw/v1/export/preview.json': { get: preview, post: { ...preview, ...formBody } },
  };
}

/** The export area's part of the API reference; parameters come from the table that the parser reads. */
export function describeExportApi(): OpenApiPart {
  const create = method(
    'Create an export request.',
    [...parameters.map(describeParameter), paramsParameter],
    object({ idRawExport: text }),
    {},
  );
  const getRaw = method(
    'State and files of an export request.',
    [idParameter('idRawExport')],
    reference('RawExport'),
    notFound,
  );
  const cancel = method(
    'Cancel an export request in progress.',
    [idParameter('idRawExport')],
    object({ idRawExport: text, info: { type: 'string', const: 'Canceled' } }),
    notFound,
  );
  const getReport = method(
    'State and files of a report file.',
    [idParameter('idReportFile')],
    reference('ReportFile'),
    notFound,
  );
  const list = object({ reports: { type: 'array', items: reference('ReportSummary') } });
  return {
    area: 'export',
    paths: {
      '/api/raw/v1/export/create.json': { get: create, post: { ...create, ...formBody } },
      ...describeLooks([...parameters.map(describeParameter), paramsParameter]),
      '/api/raw/v1/export/get.json': { get: getRaw, post: getRaw },
      '/api/raw/v1/export/cancel.json': { get: cancel, post: cancel },
      '/api/raw/v1/export/list.json': { get: method(listSummary, listParameters, reference('RawExportPage'), {}) },
      '/api/report/v1/file/get.json': { get: getReport, post: getReport },
      '/api/report/v1/file/list.json': { get: method("The caller's requests, newest first.", [], list, {}) },
      '/manifest-key.json': { get: manifestKey },
      '/files/{id}/{name}': { get: download, head: download },
      ...Object.fromEntries(
        dictionaryNames.map((name) => [`/api/dictionary/v1/${name}.json`, { get: describeDictionary(name) }]),
      ),
    },
    examples: exportExamples,
    components: {
      schemas,
      securitySchemes: {
        basic: { type: 'http', scheme: 'basic', description: 'API user id and secret.' },
        authHmac: {
          type: 'apiKey',
          in: 'header',
          name: 'Authorization',
          description: 'AuthHMAC <API user id>:<base64 of HMAC-SHA1 over METHOD & encoded URL & encoded body>.',
        },
      },
    },
  };
}
