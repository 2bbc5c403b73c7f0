/** The manifest of an export in the API reference. */
type Schema = Readonly<Record<string, unknown>>;

const text: Schema = { type: 'string' };
const time: Schema = { type: 'string', format: 'date-time' };
const count: Schema = { type: 'integer', minimum: 0 };
const hash: Schema = { type: 'string', pattern: '^[0-9a-f]{64}$' };

function object(properties: Readonly<Record<string, Schema>>, optional: readonly string[] = []): Schema {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: 'object', required, properties };
}

export const manifestSchema: Schema = {
  ...object({
    manifestVersion: { type: 'integer', const: 1 },
    idReportFile: text,
    event: text,
    request: { type: 'object', description: 'As it was understood: days are Unix seconds, aliases their event.' },
    createdAt: time,
    finishedAt: time,
    data: object(
      {
        version: count,
        nextSinceVersion: text,
        keptUntilSeconds: { ...count, description: 'Until then at least, `asOf` gives the same bytes.' },
        head: { ...hash, description: "SHA-256 of the log's entry of the version." },
        watermarkMs: { ...count, description: 'Unix milliseconds; absent where it is not known.' },
      },
      ['head', 'watermarkMs'],
    ),
    columns: { type: 'array', items: text },
    rows: count,
    files: { type: 'array', items: object({ name: text, rows: count, bytes: count, sha256: hash }) },
    key: { ...hash, description: 'The public Ed25519 key.' },
    signature: {
      type: 'string',
      pattern: '^[0-9a-f]{128}$',
      description: 'Over the same object without it, as JSON without spaces, its members in their order.',
    },
  }),
  description: "What the link `manifest` of a finished export leads to: 'tributary verify' compares files with it.",
};
