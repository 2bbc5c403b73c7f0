/** The answers of `estimate.json` and `preview.json` in the API reference. */
type Schema = Readonly<Record<string, unknown>>;

const text: Schema = { type: 'string' };
const count: Schema = { type: 'integer', minimum: 0 };

function object(properties: Readonly<Record<string, Schema>>): Schema {
  return { type: 'object', required: Object.keys(properties), properties };
}

const basis = { version: text, nextSinceVersion: text, timestampKeptUntil: text };
const unbounded = { type: ['integer', 'null'], description: 'null: nothing bounds it.' };

export const lookSchemas: Readonly<Record<string, Schema>> = {
  Bounds: object({ atLeast: count, expected: unbounded, atMost: unbounded }),
  Estimate: object({
    rows: { $ref: '#/components/schemas/Bounds' },
    bytes: {
      $ref: '#/components/schemas/Bounds',
      description: 'Of CSV and JSON lines the text before compression, of zstd and Parquet the file.',
    },
    parts: object({ atLeast: count, atMost: unbounded }),
    seconds: { type: 'number', description: 'How long it will run, without the time that it waits for its turn.' },
    overLimit: { type: 'boolean', description: 'It may be over a limit.' },
    overLimits: {
      type: 'array',
      items: object({
        limit: { type: 'string', enum: ['rows', 'bytes'] },
        allowed: count,
        isCertain: { type: 'boolean', description: 'true: the export would end in an error.' },
        todo: text,
      }),
    },
    ...basis,
  }),
  Preview: object({
    columns: { type: 'array', items: text },
    rows: {
      type: 'array',
      maxItems: 20,
      items: { type: 'array', items: { type: ['string', 'null'] } },
      description: 'Cells in the order of the columns, as CSV has them before quoting; null: an empty cell.',
    },
    isCut: { type: 'boolean', description: 'The export has more rows than these.' },
    ...basis,
  }),
};
