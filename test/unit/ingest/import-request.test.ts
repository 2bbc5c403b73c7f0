import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { events } from '../../../src/datasets/dataset.ts';
import { platforms } from '../../../src/datasets/field-schema.ts';
import { parseImportRequest, type ImportedLines, type ImportRequest } from '../../../src/ingest/import-request.ts';
import { answerOf, renderDetail, type Refusal } from '../../../src/ingest/refusal.ts';
import { bodyOf, expectedLines, headersOf, readImportCases, type ImportCase } from '../../helpers/import-cases.ts';

/** The request of a case, as the server hands it over. */
function requestOf(imported: ImportCase): ImportRequest {
  const { app: platform = 'web' } = imported;
  const body = bodyOf(imported);
  const headersDistinct = Object.fromEntries(
    Object.entries(headersOf(imported, {})).map(([name, value]) => [name.toLowerCase(), [value].flat()]),
  );
  if (imported.chunked !== true) headersDistinct['content-length'] = [String(body.length)];
  const headers = Object.fromEntries(
    Object.entries(headersDistinct).map(([name, values]) => [name, values.join(', ')]),
  );
  return {
    method: imported.method ?? '',
    head: { headers, headersDistinct },
    body,
    // The apps of the cases are numbered in the order of the platforms.
    app: { idApp: platforms.indexOf(platform) + 1, platform },
    receivedAtMs: Date.now(),
  };
}

const isOfBody = ({ path, method = '', status }: ImportCase): boolean =>
  path === undefined && status !== 403 && events.methods.has(method);

const request = (change: Partial<ImportRequest>): ImportRequest => ({
  method: 'login',
  head: { headers: {}, headersDistinct: {} },
  body: Buffer.from('{"customUserId":"u"}'),
  app: { idApp: 7, platform: 'web' },
  receivedAtMs: 1_700_000_000_000,
  ...change,
});

function linesOf(result: ImportedLines | Refusal): Record<string, unknown>[] {
  if ('reason' in result) throw new Error(`${result.reason}: ${result.detail}`);
  const lines = result.lines.toString().split('\n');
  expect(lines.pop()).toBe('');
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Result of a request, with the response of the server. */
function resultOf(result: ImportedLines | Refusal): {
  readonly status: number;
  readonly lines?: Record<string, unknown>[];
  readonly error?: string;
  readonly detail?: string;
} {
  if (!('reason' in result)) return { status: 200, lines: linesOf(result) };
  const { status, error } = answerOf(result.reason);
  return { status, error, detail: renderDetail(result.detail) };
}

function expectedResult(imported: ImportCase): object {
  const { status, error, detail = '' } = imported;
  if (error === undefined) return { status, lines: expectedLines(imported) };
  const anyDetail: unknown = expect.stringContaining(detail);
  return { status, error, detail: anyDetail };
}

describe.each(
  // Paths, tokens and methods without a body are the server's.
  readImportCases()
    .map(([file, cases]) => [file, cases.filter(isOfBody)] as const)
    .filter(([, cases]) => cases.length > 0),
)('a request of %s', (_file, cases) => {
  it.each(cases.map((imported) => [imported.rule, imported] as const))('The case holds: %s', (_, imported) => {
    const actual = resultOf(parseImportRequest(requestOf(imported)));
    expect(actual).toMatchObject(expectedResult(imported));
    const { absent = [] } = imported;
    expect(absent.filter((column) => actual.lines?.some((line) => Object.hasOwn(line, column)))).toEqual([]);
  });
});

describe('a request', () => {
  it('A request becomes the same lines however often it is parsed under a key', () => {
    const head = { headers: { 'idempotency-key': 'k' }, headersDistinct: { 'idempotency-key': ['k'] } };
    const [first, second] = [parseImportRequest(request({ head })), parseImportRequest(request({ head }))];
    expect(linesOf(first)).toEqual(linesOf(second));
  });

  it('A request is counted by its events and by the parameters that no schema knows', () => {
    const body = Buffer.from('[{"customUserId":"u","x":1},{"customUserId":"v","y":{},"__proto__":2}]');
    expect(parseImportRequest(request({ method: 'loginBatch', body }))).toMatchObject({
      kind: 'login',
      count: 2,
      unknownParameters: 3,
    });
  });

  it('An empty array as customEventParams is the same event, id and line as an empty map, on either path of validation', () => {
    const head = { headers: { 'idempotency-key': 'k' }, headersDistinct: { 'idempotency-key': ['k'] } };
    for (const age of ['33', '"33"']) {
      const [first, second] = ['[]', '{}'].map((params) => {
        const body = `{"customUserId":"u","customEventName":"e","age":${age},"customEventParams":${params}}`;
        return linesOf(parseImportRequest(request({ method: 'customEvent', head, body: Buffer.from(body) })));
      });
      expect(first).toEqual(second);
    }
  });

  it('The parser of a request leaves its bytes as they were', () => {
    const body = gzipSync('{"customUserId":"u","age":"33"}');
    const before = Buffer.from(body);
    const head = { headers: { 'content-encoding': 'gzip' }, headersDistinct: {} };
    expect(linesOf(parseImportRequest(request({ head, body })))).toMatchObject([{ custom_user_id: 'u', age: 33 }]);
    expect(body.equals(before)).toBe(true);
  });

  it('A request with more bytes than may be read is rejected, regardless of the length in its head', () => {
    const head = { headers: { 'content-length': '1' }, headersDistinct: {} };
    expect(parseImportRequest(request({ head, body: Buffer.alloc(10_241, ' ') }))).toMatchObject({ reason: 'size' });
  });
});
