import { formatNames } from '../../datasets/file-formats.ts';
import { describeFormerNames } from '../../runtime/former-names.ts';
import { choice, constant, count, flag, hash, listOf, moment, note } from '../../runtime/http/openapi.ts';
import { object, reference, text, type Schema } from '../../runtime/http/openapi.ts';

/** Returns members of an object that have the same schema. */
export const members = (schema: Schema, ...names: readonly string[]): Readonly<Record<string, Schema>> =>
  Object.fromEntries(names.map((name) => [name, schema]));

const linked = {
  link: { type: 'string', format: 'uri' },
  timestampExpires: note(text, 'Expiry of the link, Unix seconds.'),
};
const link = object(linked);
const file = object({
  ...linked,
  rows: count,
  bytes: count,
  sha256: note(text, 'SHA-256 of the downloaded file, hex.'),
});
const progress = { type: 'string', pattern: '^[0-9]{1,2}%$', description: 'Progress of a request that has not ended.' };
const isCancellable = note(flag, 'Whether the request can be canceled.');

export const slot = {
  'idSchedule?': note(text, 'Schedule that created the export.'),
  'slot?': {
    type: 'string',
    pattern: String.raw`^\d{4}-\d{2}-\d{2}(T\d{2}Z)?$`,
    description:
      'Slot of that schedule: the date (YYYY-MM-DD), or the UTC hour (YYYY-MM-DDTHHZ) of an hourly schedule.',
  },
  // Not `const: true`, which client generators turn into invalid programs.
  'slotMayBeIncomplete?': note(flag, 'Whether events acknowledged before the end of the period may be missing.'),
};

const basis = {
  'format?': choice(formatNames),
  'hasHeader?': note(flag, 'Whether each file begins with a line of column names.'),
  'manifest?': note(link, 'Link to the signed Manifest of the export.'),
  'version?': text,
  'nextSinceVersion?': text,
  'timestampKeptUntil?': note(
    text,
    'Unix seconds. Until then, the same request with asOf returns the same bytes, unless an erasure removes rows of its apps or deletes all older versions at once.',
  ),
  'timestampWatermark?': note(
    text,
    'Unix seconds. Events acknowledged before this time are in the version. Absent if unknown.',
  ),
};

const finished = { 'progress?': progress, 'files?': listOf(file), 'archive?': link, ...basis };
const delivery = object({
  idDestination: text,
  status: choice(['Waiting', 'Delivered', 'Failed']),
  files: note(count, 'Number of delivered files, without the manifest.'),
  'filesInTotal?': count,
  'error?': note(text, 'Error of the last attempt.'),
  attempts: count,
  'timestampDelivered?': text,
  'timestampNextAttempt?': text,
});
const states = ['In progress', 'Error occurred', 'Success!'];

export const manifestSchema = object(
  {
    manifestVersion: constant(1),
    idReportFile: text,
    event: text,
    request: { type: 'object', description: 'Parsed request: days are Unix seconds, aliases their event.' },
    createdAt: moment,
    finishedAt: moment,
    data: object({
      version: count,
      nextSinceVersion: text,
      keptUntilSeconds: note(count, 'Unix seconds. Until then, `asOf` returns the same bytes.'),
      'head?': note(hash, "SHA-256 of the version's log entry."),
      'watermarkMs?': note(count, 'Unix milliseconds; absent if unknown.'),
    }),
    columns: listOf(text),
    rows: count,
    files: listOf(object({ name: text, rows: count, bytes: count, sha256: hash })),
    key: note(hash, 'The public Ed25519 key.'),
    signature: {
      type: 'string',
      pattern: '^[0-9a-f]{128}$',
      description: 'Signature of the object without this member, as JSON without spaces, in the order of its members.',
    },
  },
  {
    description: "Signed description of an export's files. 'tributary verify' compares files with it.",
  },
);

const lookBasis = { version: text, nextSinceVersion: text, timestampKeptUntil: text };
const unbounded = { type: ['integer', 'null'], description: 'null: unbounded.' };

const dryRunSchemas: Readonly<Record<string, Schema>> = {
  Bounds: object({ atLeast: count, expected: unbounded, atMost: unbounded }),
  Estimate: object({
    rows: reference('Bounds'),
    bytes: note(
      reference('Bounds'),
      'Size of the text before compression (CSV, JSON lines) or of the file (zstd, Parquet).',
    ),
    parts: object({ atLeast: count, atMost: unbounded }),
    seconds: { type: 'number', description: 'Estimated duration without the time in the queue, s.' },
    overLimit: note(flag, 'Whether the export may exceed a limit.'),
    overLimits: listOf(
      describeFormerNames(
        'overLimit',
        object({
          limit: choice(['rows', 'bytes']),
          allowed: count,
          isCertain: note(flag, 'Whether the export would certainly fail.'),
          action: text,
        }),
      ),
    ),
    ...lookBasis,
  }),
  DailyRows: object({
    days: listOf(
      object({ date: text, rows: count }),
      'By date in the time zone of the request; dates without rows are absent.',
    ),
    ...lookBasis,
  }),
  Preview: describeFormerNames(
    'preview',
    object({
      columns: listOf(text),
      rows: {
        ...listOf(
          listOf({ type: ['string', 'null'] }),
          'Cells in column order, as in CSV before quoting; null: an empty cell.',
        ),
        maxItems: 20,
      },
      isTruncated: note(flag, 'Whether the export has more rows than these.'),
      ...lookBasis,
    }),
  ),
};

export const exportSchemas: Readonly<Record<string, Schema>> = {
  ...dryRunSchemas,
  AccessDenied: object({ code: constant(403), message: constant('Access denied'), data: { type: 'null' } }),
  ExportRefusal: object({
    code: { type: 'integer' },
    message: text,
    data: object({
      error: object({ detail: text, 'info?': object({ exports: listOf(object({ idRawExport: text })) }) }),
    }),
  }),
  Failed: object({ code: constant(500), message: text, data: { type: ['object', 'null'] } }),
  ReportFile: object({ idReportFile: text, status: choice(states), ...finished }),
  RawExport: describeFormerNames(
    'export',
    object({
      idRawExport: text,
      idReportFile: text,
      'name?': text,
      status: choice([...states, 'User error occurred', 'Canceled by user']),
      ...slot,
      'isCancellable?': isCancellable,
      'errorMessage?': text,
      'delivery?': delivery,
      ...finished,
    }),
  ),
  ReportSummary: describeFormerNames(
    'export',
    object({
      ...members(text, 'idReportFile', 'idRawExport', 'event', 'name?', 'status'),
      ...slot,
      timestampCreated: text,
      'progress?': progress,
      'errorMessage?': text,
      'timestampExpires?': text,
      ...members(count, 'files?', 'rows?', 'bytes?'),
    }),
  ),
  Manifest: manifestSchema,
  RawExportPage: object({
    exports: listOf({
      allOf: [
        reference('ReportSummary'),
        {
          type: 'object',
          properties: {
            isCancellable,
            timestampFinished: text,
            summary: note(text, 'Filters and columns in one line.'),
            arguments: {
              type: 'object',
              description: 'Arguments that repeat the request; days are seconds.',
              additionalProperties: { oneOf: [text, listOf(text)] },
            },
          },
        },
      ],
    }),
    total: note(count, 'Number of requests in the whole list, or of those found by search.'),
    'before?': note(text, 'Value of `before` for the next page; absent on the last page.'),
  }),
};
