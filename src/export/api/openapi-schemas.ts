/** The schemas of the export area. */
import { formatNames } from '../../datasets/file-formats.ts';
import { describeFormerNames } from '../../runtime/former-names.ts';
import { choice, constant, count, flag, hash, listOf, moment, note } from '../../runtime/http/openapi.ts';
import { object, reference, text, type Schema } from '../../runtime/http/openapi.ts';

/** Returns members of an object that have the same schema. */
export const members = (schema: Schema, ...names: readonly string[]): Readonly<Record<string, Schema>> =>
  Object.fromEntries(names.map((name) => [name, schema]));

const linked = {
  link: { type: 'string', format: 'uri' },
  timestampExpires: note(text, 'Unix seconds: until then the link works.'),
};
const link = object(linked);
const file = object({
  ...linked,
  rows: count,
  bytes: count,
  sha256: note(text, 'Of the file as it is downloaded, hex.'),
});
const progress = { type: 'string', pattern: '^[0-9]{1,2}%$', description: 'While in progress.' };
const isCancellable = note(flag, 'true while in progress.');

export const slot = {
  'idSchedule?': note(text, 'The schedule that has made it.'),
  'slot?': {
    type: 'string',
    pattern: String.raw`^\d{4}-\d{2}-\d{2}(T\d{2}Z)?$`,
    description:
      'Its slot in that schedule: the date (YYYY-MM-DD), of an hourly schedule the hour in UTC (YYYY-MM-DDTHHZ).',
  },
  // Not `const: true`, which client generators turn into invalid programs.
  'slotMayBeIncomplete?': note(flag, 'Whether events acknowledged before the end of the period may be missing.'),
};

const basis = {
  'format?': choice(formatNames),
  'hasHeader?': note(flag, 'Whether each file begins with a line of column names.'),
  'manifest?': note(link, 'Leads to the signed record of the export, a Manifest.'),
  'version?': text,
  'nextSinceVersion?': text,
  'timestampKeptUntil?': note(
    text,
    'Unix seconds: until then the same request with asOf gives the same bytes, unless an erasure has taken rows of its apps, or one that waits for no reader has ended every older version.',
  ),
  'timestampWatermark?': note(
    text,
    'Unix seconds: what was acknowledged before is in the version. Absent where that is not known.',
  ),
};

const finished = { 'progress?': progress, 'files?': listOf(file), 'archive?': link, ...basis };
const states = ['In progress', 'Error occurred', 'Success!'];

export const manifestSchema = object(
  {
    manifestVersion: constant(1),
    idReportFile: text,
    event: text,
    request: { type: 'object', description: 'As it was understood: days are Unix seconds, aliases their event.' },
    createdAt: moment,
    finishedAt: moment,
    data: object({
      version: count,
      nextSinceVersion: text,
      keptUntilSeconds: note(count, 'Until then at least, `asOf` gives the same bytes.'),
      'head?': note(hash, "SHA-256 of the log's entry of the version."),
      'watermarkMs?': note(count, 'Unix milliseconds; absent where it is not known.'),
    }),
    columns: listOf(text),
    rows: count,
    files: listOf(object({ name: text, rows: count, bytes: count, sha256: hash })),
    key: note(hash, 'The public Ed25519 key.'),
    signature: {
      type: 'string',
      pattern: '^[0-9a-f]{128}$',
      description: 'Over the same object without it, as JSON without spaces, its members in their order.',
    },
  },
  {
    description: "What the link `manifest` of a finished export leads to: 'tributary verify' compares files with it.",
  },
);

const lookBasis = { version: text, nextSinceVersion: text, timestampKeptUntil: text };
const unbounded = { type: ['integer', 'null'], description: 'null: nothing bounds it.' };

const lookSchemas: Readonly<Record<string, Schema>> = {
  Bounds: object({ atLeast: count, expected: unbounded, atMost: unbounded }),
  Estimate: object({
    rows: reference('Bounds'),
    bytes: note(
      reference('Bounds'),
      'Of CSV and JSON lines the text before compression, of zstd and Parquet the file.',
    ),
    parts: object({ atLeast: count, atMost: unbounded }),
    seconds: { type: 'number', description: 'How long it will run, without the time that it waits for its turn.' },
    overLimit: note(flag, 'It may be over a limit.'),
    overLimits: listOf(
      describeFormerNames(
        'overLimit',
        object({
          limit: choice(['rows', 'bytes']),
          allowed: count,
          isCertain: note(flag, 'true: the export would end in an error.'),
          action: text,
        }),
      ),
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
          'Cells in the order of the columns, as CSV has them before quoting; null: an empty cell.',
        ),
        maxItems: 20,
      },
      isTruncated: note(flag, 'Whether the export has more rows than these.'),
      ...lookBasis,
    }),
  ),
};

export const exportSchemas: Readonly<Record<string, Schema>> = {
  ...lookSchemas,
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
      status: choice([...states, 'User error occurred', 'Canceled by user']),
      ...slot,
      'isCancellable?': isCancellable,
      'errorMessage?': text,
      ...finished,
    }),
  ),
  ReportSummary: describeFormerNames(
    'export',
    object({
      ...members(text, 'idReportFile', 'idRawExport', 'event', 'status'),
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
            arguments: {
              type: 'object',
              description: 'Arguments of create that order the same again: days as the seconds that they were.',
              additionalProperties: { oneOf: [text, listOf(text)] },
            },
          },
        },
      ],
    }),
    total: note(count, 'Requests of the whole list.'),
    'before?': note(text, 'Asks for the next piece; absent: there is none.'),
  }),
};
