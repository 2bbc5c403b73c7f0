/** The list of requests in pieces, in the API reference. */
import { listLimits } from './export-routes.ts';

type Schema = Readonly<Record<string, unknown>>;

const text: Schema = { type: 'string' };
const count: Schema = { type: 'integer', minimum: 0 };

export const listSummary = "The caller's requests in pieces, newest first, each with what it was ordered with.";

export const listParameters: readonly Schema[] = [
  {
    name: 'limit',
    in: 'query',
    required: false,
    description: `Requests of the answer; ${listLimits.fallback} by default.`,
    schema: { type: 'integer', minimum: 1, maximum: listLimits.most },
  },
  {
    name: 'before',
    in: 'query',
    required: false,
    description: 'Only requests older than this one: before of the answer with the piece that was newer.',
    schema: { type: 'string', pattern: '^[1-9][0-9]*$' },
  },
];

export const listSchemas: Readonly<Record<string, Schema>> = {
  RawExportPage: {
    type: 'object',
    required: ['exports', 'total'],
    properties: {
      exports: {
        type: 'array',
        items: {
          allOf: [
            { $ref: '#/components/schemas/ReportSummary' },
            {
              type: 'object',
              properties: {
                isCancellable: { type: 'boolean', description: 'true while in progress.' },
                timestampFinished: text,
                arguments: {
                  type: 'object',
                  description: 'Arguments of create that order the same again: days as the seconds that they were.',
                  additionalProperties: { oneOf: [text, { type: 'array', items: text }] },
                },
              },
            },
          ],
        },
      },
      total: { ...count, description: 'Requests of the whole list.' },
      before: { ...text, description: 'Asks for the next piece; absent: there is none.' },
    },
  },
};
