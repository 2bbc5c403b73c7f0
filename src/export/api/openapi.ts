import { dictionaryNames } from '../../datasets/dictionaries.ts';
import type { OpenApiPart } from '../../runtime/http/openapi.ts';
import { constant, count, json, listOf, object, parameter, reference, text } from '../../runtime/http/openapi.ts';
import type { Schema } from '../../runtime/http/openapi.ts';
import { listLimits } from './export-routes.ts';
import { exportExamples } from './openapi-examples.ts';
import { exportSchemas } from './openapi-schemas.ts';
import { customEvents, parameters, paramRule, setSizeLimit, type Parameter } from './parameters.ts';
import { paramMeanings } from './parse-params.ts';

const security = [{ basic: [] }, { authHmac: [] }];
const refusal = reference('ExportRefusal');

function envelope(data: Schema): Schema {
  return object({ code: constant(200), message: constant('Ok'), data });
}

export const retryAfter = { 'Retry-After': { description: 'Seconds to wait.', schema: count } };
const overQuota = json('A quota is exceeded.', refusal, { headers: retryAfter });
const refusals = {
  400: json('An argument is invalid; see data.error.detail.', refusal),
  403: json('Authorization is missing or wrong.', reference('AccessDenied')),
  429: overQuota,
  500: json('The service cannot process the request now.', reference('Failed'), { headers: retryAfter }),
};
export const notFoundResponse = {
  404: json("The request does not exist, is not of the caller's account, or its links have expired.", refusal),
};

function schemaOf({ shape }: Parameter): Schema {
  return shape === 'one' ? text : { type: 'array', items: text, maxItems: setSizeLimit - 1 };
}

export function describeParameter(one: Parameter): Schema {
  const { name, meaning, shape, rule, events, hasEscapes } = one;
  const notes = [
    meaning,
    `Allowed: ${rule.allowed}.`,
    ...(shape === 'set' ? ['Several values: a,b or repeated.'] : []),
    ...(hasEscapes === true ? [String.raw`A comma in a value: \,; a backslash: \\.`] : []),
    ...(events === undefined ? [] : [`Only for ${events.join(', ')}.`]),
  ];
  return {
    ...parameter(name, schemaOf(one), notes.join(' ')),
    required: name === 'event' || name === 'selectors',
    ...(shape !== 'one' ? { style: 'form', explode: shape === 'list' } : {}),
  };
}

/**
 * Describes `params[NAME]=value` as the members of an object, whose own name is not sent: client generators fail on a
 * parameter that is called `params`.
 */
export const paramsParameter: Schema = {
  ...parameter(
    'paramsFilter?',
    { type: 'object', additionalProperties: listOf(text) },
    `Filters on parameters of custom events, such as params[level]=3. ${paramMeanings}. Send the names with their brackets, without paramsFilter. Names and texts: ${paramRule.allowed}. Only for ${customEvents.join(', ')}.`,
  ),
  style: 'form',
  explode: true,
};

const numberText: Schema = { type: 'string', pattern: '^[1-9][0-9]*$' };
const idParameter = (name: string): Schema => parameter(name, numberText, 'Id returned by create.');

export function method(summary: string, callParameters: readonly Schema[], data: Schema, others: Schema = {}): Schema {
  return {
    summary,
    tags: ['Export'],
    security,
    parameters: callParameters,
    responses: { 200: json('Done.', envelope(data)), ...refusals, ...others },
  };
}

const listParameters: readonly Schema[] = [
  parameter(
    'limit?',
    { type: 'integer', minimum: 1, maximum: listLimits.most },
    `Maximum number of requests. Default: ${listLimits.fallback}.`,
  ),
  parameter('search?', text, 'Text in the name, id, event, event names, schedule or filtered apps of the request.'),
  parameter('before?', numberText, 'Only requests older than this one; `before` of the previous page.'),
];

const download = {
  summary: 'Download a file, the archive of all files or the manifest by its signed link.',
  tags: ['Export'],
  security: [],
  parameters: [
    ...['id', 'name'].map((name) => parameter(name, text, undefined, 'path')),
    ...['expires', 'kid', 'signature', 'user?', 'x-ending?'].map((name) => parameter(name, text)),
    ...['Range?', 'If-Range?', 'If-Match?', 'If-None-Match?'].map((name) => parameter(name, text, undefined, 'header')),
  ],
  responses: {
    200: {
      description:
        'The file: text/csv, application/jsonl, application/gzip, application/zstd, application/vnd.apache.parquet or application/zip; a Manifest is application/json.',
    },
    206: { description: 'The requested range of the file.' },
    302: { description: 'The file is at a URL of the bucket, for a minute: TRIBUTARY_DOWNLOADS is redirect.' },
    304: { description: 'The file matches If-None-Match.' },
    403: json(
      'The link is invalid or expired, or its user was removed or has a new secret.',
      reference('AccessDenied'),
    ),
    404: json('The request was deleted.', refusal),
    412: json('The file does not match If-Match.', refusal),
    416: { description: 'The range is outside of the file.' },
    500: json('The file is damaged on the disk of the service: create the export again.', reference('Failed')),
    503: { description: 'The bucket with the file does not respond. Retry after Retry-After seconds.' },
  },
};

const manifestKey = {
  summary: 'Get the public key of manifests.',
  tags: ['Export'],
  security: [],
  responses: { 200: json('Done.', envelope(object({ algorithm: constant('Ed25519'), key: text }))) },
};

const dictionarySchemas: Readonly<Record<string, Schema>> = {
  events: { type: 'object', additionalProperties: listOf(text) },
  selectors: listOf(object({ name: text, type: text, meaning: text })),
  timezones: listOf(text),
};

function describeDictionary(name: string): Schema {
  const data = dictionarySchemas[name] ?? { type: 'object', additionalProperties: text };
  return {
    summary: `Get the ${name} dictionary.`,
    tags: ['Dictionaries'],
    security: [],
    responses: { 200: json('Done.', envelope(data)), 429: overQuota },
  };
}

/** A form body takes the parameters of the query, so that none is required in the query. */
const formBody = {
  description: 'Send the parameters in the query, in a form body, or in both. The Content-Type is ignored.',
  parameters: [...parameters.map((one) => ({ ...describeParameter(one), required: false })), paramsParameter],
  requestBody: {
    required: false,
    content: {
      'application/x-www-form-urlencoded': {
        schema: object(Object.fromEntries(parameters.map((one) => [`${one.name}?`, schemaOf(one)]))),
      },
    },
  },
};

function describeExportFormMethod(summary: string, data: Schema): Schema {
  const get = method(summary, [...parameters.map(describeParameter), paramsParameter], data);
  return { get, post: { ...get, ...formBody } };
}

function describeOne(summary: string, id: string, data: Schema): Schema {
  const get = method(summary, [idParameter(id)], data, notFoundResponse);
  return { get, post: get };
}

export function describeExportApi(): OpenApiPart {
  const [estimate, preview] = [reference('Estimate'), reference('Preview')];
  const canceled = object({ idRawExport: text, info: constant('Canceled') });
  const pages = "List the caller's requests with their arguments, in pages, newest first.";
  const reports = object({ reports: listOf(reference('ReportSummary')) });
  return {
    area: 'export',
    paths: {
      '/api/raw/v1/export/create.json': describeExportFormMethod(
        'Create an export request.',
        object({ idRawExport: text }),
      ),
      '/api/raw/v1/export/estimate.json': describeExportFormMethod(
        'Get an estimate of an export: rows, bytes, files, duration.',
        estimate,
      ),
      '/api/raw/v1/export/preview.json': describeExportFormMethod('Get the first 20 rows of an export.', preview),
      '/api/raw/v1/export/daily.json': describeExportFormMethod(
        'Get the number of rows of an export by date.',
        reference('DailyRows'),
      ),
      '/api/raw/v1/export/get.json': describeOne(
        'Get the state and files of an export request.',
        'idRawExport',
        reference('RawExport'),
      ),
      '/api/raw/v1/export/cancel.json': describeOne('Cancel an export request in progress.', 'idRawExport', canceled),
      '/api/raw/v1/export/list.json': { get: method(pages, listParameters, reference('RawExportPage')) },
      '/api/report/v1/file/get.json': describeOne(
        'Get the state and files of a report file.',
        'idReportFile',
        reference('ReportFile'),
      ),
      '/api/report/v1/file/list.json': { get: method("List the caller's requests, newest first.", [], reports) },
      '/manifest-key.json': { get: manifestKey },
      '/files/{id}/{name}': { get: download, head: download },
      ...Object.fromEntries(
        dictionaryNames.map((name) => [`/api/dictionary/v1/${name}.json`, { get: describeDictionary(name) }]),
      ),
    },
    examples: exportExamples,
    components: {
      schemas: exportSchemas,
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
