import { METHODS } from 'node:http';
import * as fc from 'fast-check';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chaosSeed } from '../../helpers/chaos.ts';
import { createExportArea, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { startTestIngest, type TestIngest } from '../../helpers/ingest.ts';
import { readAnswers, talk, type TalkAnswer } from '../../helpers/talk.ts';

/** Requests without a token, a user or a link to both ports. */

const seed = chaosSeed();
const runs = 600;

const targets = [
  '/',
  '*',
  '/v1/login/',
  '/v1/login/?idApp=1',
  '/v1/loginBatch?idApp=3',
  '/v1/version',
  '/v1/test-app-access/?idApp=1',
  '/v2/login/',
  '/v1/%zz',
  '/%',
  '/%00',
  '/v1/login%2f..%2f',
  '//',
  '/v1//login',
  '/__proto__',
  '/constructor?__proto__=1',
  'http://other.example/v1/login/?idApp=1',
  '/api/raw/v1/export/create.json',
  '/api/raw/v1/export/create.json?event=installs&selectors=%ff',
  '/api/raw/v1/export/get.json?idRawExport=1',
  '/api/report/v1/file/get.json?idReportFile=x',
  '/api/report/v1/file/list.json',
  '/api/dictionary/v1/rooted.json',
  '/api/dictionary/v1/toString.json',
  '/files/',
  '/files/1/x?expires=1&kid=00000000&signature=0',
  '/healthz/',
  `/${'a'.repeat(3000)}`,
];
const headers = [
  '',
  'Content-Type: ',
  'Content-Type: x',
  'Content-Type: application/json',
  'Content-Type: application/json; charset="',
  'Content-Type: multipart/form-data',
  'Content-Encoding: gzip',
  'Content-Encoding: br',
  'Transfer-Encoding: chunked',
  'Expect: 100-continue',
  'Expect: 200-maybe',
  'Upgrade: h2c\r\nConnection: Upgrade',
  'Upgrade: websocket\r\nConnection: Upgrade',
  'Connection: keep-alive, close',
  'Accept-Version: 9',
  'Accept: text/html',
  'Origin: http://evil.example',
  'Authorization: ',
  'Authorization: wrong',
  'Authorization: Basic !',
  'Authorization: Basic MTp4',
  'Authorization: AuthHMAC 1:AAAAAAAAAAAAAAAAAAAAAAAAAAA=',
  'Authorization: a\r\nAuthorization: b',
  'Idempotency-Key: a\r\nIdempotency-Key: b',
  'Range: bytes=0-',
  'If-Match: *',
  'Host: two.example',
  `X: ${'y'.repeat(5000)}`,
  'X: 1\r\n'.repeat(2100).trimEnd(),
  'Trailer: x',
  'Content-Length: 0',
  'X: \u00ff',
  'Cookie: a=b',
  'X-HTTP-Method-Override: POST',
  'X-Forwarded-Host: evil.example',
  'Forwarded: for=1',
];
const bodies = ['', '{}', '{"customUserId":"u"}', 'event=installs&selectors=idApp', '\u0000\u00ff'];

function requestOf(method: string, target: string, header: string, given: string): string {
  // Bytes after this length would be another request.
  const body = /^content-length/i.test(header) ? '' : given;
  const isChunked = /^transfer-encoding/i.test(header);
  const length = body === '' || isChunked ? '' : `Content-Length: ${body.length}\r\n`;
  return `${method} ${target} HTTP/1.1\r\nHost: a\r\n${length}${header === '' ? '' : `${header}\r\n`}\r\n${isChunked ? `${body.length.toString(16)}\r\n${body}\r\n${body === '' ? '' : '0\r\n\r\n'}` : body}`;
}

/** Reports whether a response has the format of its area: import's one field, or export's envelope with the status. */
function isOwnForm(area: 'import' | 'export', { status, body }: TalkAnswer): boolean {
  const parsed = JSON.parse(body) as { error?: unknown; code?: unknown; message?: unknown };
  if (area === 'export') return parsed.code === status && typeof parsed.message === 'string';
  return Object.keys(parsed).length === 1 && typeof parsed.error === 'string';
}

describe(`an unauthenticated client (seed ${seed})`, () => {
  const lines: string[] = [];
  const logger = pino({ level: 'trace' }, { write: (line) => void lines.push(line) });
  const [serviceDir, areaDir] = [temporaryFolder(), temporaryFolder()];
  let service: TestIngest;
  let area: RunningArea;
  beforeAll(async () => {
    service = await startTestIngest(serviceDir, { logger });
    area = await createExportArea(areaDir).start({ logger });
  });
  afterAll(async () => {
    await area.stop();
    await service.stop();
  });

  const alarms = (): string[] => lines.filter((line) => (JSON.parse(line) as { level: number }).level >= 40);

  /** Sends a request to both areas. Each must respond once, in its format, and without a failure of the service. */
  async function sendBoth(method: string, target: string, header: string, body: string): Promise<TalkAnswer[]> {
    const text = requestOf(method, target, header, body);
    const answers = await Promise.all(
      [service.ingest.port, area.port].map(async (port) =>
        readAnswers(await talk(port, text)).filter(({ status }) => status !== 100),
      ),
    );
    const what = `${method} ${target.slice(0, 60)} ${header.slice(0, 40)} ${JSON.stringify(body)}`;
    for (const [index, own] of answers.entries()) {
      expect(
        own.map(({ status }) => status < 500),
        what,
      ).toEqual([true]);
      const refusals = own.filter(({ status }) => status !== 200 && method !== 'HEAD');
      expect(
        refusals.filter((refusal) => !isOwnForm(index === 0 ? 'import' : 'export', refusal)),
        what,
      ).toEqual([]);
    }
    return answers.flat();
  }

  it('An unauthenticated client gets 404 in the format of other errors for every unsupported HTTP method', async () => {
    for (const method of METHODS.filter((one) => !['POST', 'HEAD'].includes(one))) {
      const [imported, exported] = await sendBoth(
        method,
        method === 'CONNECT' ? 'a:80' : '/v1/login/?idApp=1',
        '',
        method === 'GET' ? '' : '{}',
      );
      expect([imported?.status, imported?.body, exported?.status], method).toEqual([
        404,
        '{"error":"Method not found"}',
        404,
      ]);
    }
    expect(alarms()).toEqual([]);
  });

  it('An unauthenticated client gets an error in the format of the area for an expectation, too many headers, and a missing, repeated or invalid Host', async () => {
    const login = 'POST /v1/login/?idApp=1 HTTP/1.1\r\n';
    const cases = [
      [417, `${login}Host: a\r\nExpect: 200-maybe\r\n\r\n`],
      [400, `${login}${'X: y\r\n'.repeat(2100)}Host: a\r\n\r\n`],
      [400, `${login}Host: a\r\n${'X: y\r\n'.repeat(2000)}\r\n`],
      [400, `${login}\r\n`],
      [400, `${login}Host: a\r\nHost: a\r\n\r\n`],
      ...['a/b', 'a@b', 'a b', 'a?b', 'a"b', '[::1', '[::g]', 'a:b', 'a:99999', '<a>', 'a\\b', '\u00e4'].map(
        (host) => [400, `${login}Host: ${host}\r\n\r\n`] as const,
      ),
    ] as const;
    for (const [status, text] of cases) {
      for (const port of [service.ingest.port, area.port]) {
        const [answer, ...more] = readAnswers(await talk(port, text));
        expect([answer?.status, more], text.slice(0, 100)).toEqual([status, []]);
        expect(answer !== undefined && isOwnForm(port === area.port ? 'export' : 'import', answer)).toBe(true);
        // One has the reason in its envelope, the other in a header.
        expect(port === area.port ? answer?.body : answer?.head).toMatch(
          /(The|the) (request (must have one Host|has more than 2000 headers)|Host header must be|only supported expectation)/i,
        );
      }
    }
    expect(alarms()).toEqual([]);
  });

  it(
    'An unauthenticated client causes neither a failure nor a warning in the log by any method, target, header and body',
    { timeout: 60_000 },
    async () => {
      const methods = METHODS.filter((one) => one !== 'CONNECT');
      await fc.assert(
        fc.asyncProperty(
          fc.constantFrom(...methods, 'POST', 'GET'),
          fc.constantFrom(...targets),
          fc.constantFrom(...headers),
          fc.constantFrom(...bodies),
          async (...request) => void (await sendBoth(...request)),
        ),
        { seed, numRuns: runs },
      );
      expect(alarms()).toEqual([]);
    },
  );
});
