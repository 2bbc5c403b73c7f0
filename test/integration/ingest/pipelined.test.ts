import { connect } from 'node:net';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chaosSeed } from '../../helpers/chaos.ts';
import { createExportArea, type RunningArea } from '../../helpers/export-area.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { startTestIngest, testApps, type TestIngest } from '../../helpers/ingest.ts';

const seed = chaosSeed();
const runs = 400;

/**
 * What a request of the sequence is, and what it must be answered with. `event` and `batch` are stored when they are.
 */
const expected = { event: 200, batch: 200, version: 200, broken: 400, forbidden: 403, unknown: 404 } as const;
type Kind = keyof typeof expected;
/** The end of the sequence: invalid HTTP, or a truncated request. */
const tails = {
  nothing: '',
  rubbish: 'rubbish\r\n\r\n',
  tls: '\x16\x03\x01\x02\x00\x01',
  halfHead: 'POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nX: ',
  badHead: 'POST /v1/login/?idApp=3 HTTP/1.1\r\nHo st: x\r\n\r\n',
  badChunk: 'POST /v1/login/?idApp=3 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
} as const;

const plan = fc.record({
  kinds: fc.array(fc.constantFrom(...(Object.keys(expected) as Kind[])), { maxLength: 6 }),
  tail: fc.constantFrom(...(Object.keys(tails) as (keyof typeof tails)[])),
  /** Positions at which the bytes are split into separate writes. */
  cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 4 }),
});

const statusesOf = (text: string): number[] =>
  [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));

/**
 * Writes pieces on a connection; returns the answers' status codes once `enough` have come, or the server has closed.
 */
function talk(port: number, pieces: readonly string[], enough = Infinity): Promise<number[]> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let text = '';
    const look = (): void => void (statusesOf(text).length >= enough && socket.destroy());
    socket.on('data', (data) => {
      text += data.toString('latin1');
      look();
    });
    socket.once('error', () => undefined);
    socket.once('close', () => resolve(statusesOf(text)));
    const write = (index: number): void => {
      const piece = pieces[index];
      if (piece === undefined || socket.destroyed) return look();
      socket.write(piece, 'latin1', () => setImmediate(() => write(index + 1)));
    };
    write(0);
  });
}

function cut(text: string, cuts: readonly number[]): string[] {
  const places = [0, ...cuts.map((share) => Math.floor(share * text.length)).toSorted((a, b) => a - b), text.length];
  return places
    .slice(1)
    .map((end, index) => text.slice(places[index], end))
    .filter((piece) => piece !== '');
}

describe(`pipelined requests (seed ${seed})`, () => {
  const folder = temporaryFolder();
  let service: TestIngest;
  let area: RunningArea;
  let sent = 0;
  beforeAll(async () => {
    service = await startTestIngest(folder);
    area = await createExportArea(temporaryFolder()).start();
  });
  afterAll(async () => {
    await area.stop();
    await service.stop();
  });

  const request = (kind: Kind, id: string): string => {
    const event = JSON.stringify({ customUserId: id });
    const body = { event, batch: `[${event}]`, version: '', broken: '{', forbidden: event, unknown: event }[kind];
    const path = {
      event: 'login',
      batch: 'loginBatch',
      version: 'version',
      broken: 'login',
      forbidden: 'login',
      unknown: 'nothing',
    }[kind];
    const token = kind === 'forbidden' ? 'wrong' : service.tokens.web;
    return `POST /v1/${path}/?idApp=${testApps.web} HTTP/1.1\r\nHost: x\r\nAuthorization: ${token}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  };

  it(
    'Pipelined requests each get their own response in order, regardless of what follows: no stored one is rejected, and no rejected one is stored',
    { timeout: 120_000 },
    async () => {
      await fc.assert(
        fc.asyncProperty(plan, async ({ kinds, tail, cuts }) => {
          const requests = kinds.map((kind) => ({ kind, id: `pipelined-${(sent += 1)}` }));
          const text = requests.map(({ kind, id }) => request(kind, id)).join('') + tails[tail];
          const isQuiet = tail === 'nothing' || tail === 'halfHead';
          const statuses = await talk(service.ingest.port, cut(text, cuts), isQuiet ? kinds.length : Infinity);
          // in order, as far as they came; one more only for invalid HTTP, after all the others
          expect(statuses.slice(0, kinds.length)).toEqual(
            kinds.map((kind) => expected[kind]).slice(0, statuses.length),
          );
          expect(statuses.slice(kinds.length)).toEqual(
            statuses.length > kinds.length ? [tail === 'badChunk' ? 403 : 400] : [],
          );
          expect(statuses.length).toBeGreaterThanOrEqual(isQuiet ? kinds.length : 0);
          const stored = new Set((await service.newLines()).map((line) => String(line['custom_user_id'])));
          const lost = requests.filter(
            ({ kind, id }, index) => statuses[index] === 200 && kind !== 'version' && !stored.has(id),
          );
          const taken = requests.filter(({ kind, id }) => expected[kind] !== 200 && stored.has(id));
          expect({ lost, taken }).toEqual({ lost: [], taken: [] });
        }),
        { seed, numRuns: runs },
      );
    },
  );

  it('Pipelined requests (an event, a version request and garbage) are not answered by the 400 for the bytes behind them', async () => {
    for (let round = 0; round < 20; round += 1) {
      const text = `${request('event', `overtaken-${round}`)}${request('version', '')}${tails.rubbish}`;
      const statuses = await talk(service.ingest.port, [text]);
      expect(statuses.slice(0, 2)).toEqual([200, 200].slice(0, statuses.length));
    }
  });

  it('Pipelined requests to the export area are not answered by the 400 either', async () => {
    const slow = 'GET /api/raw/v1/export/get.json?idRawExport=1 HTTP/1.1\r\nHost: x\r\n\r\n';
    const fast = 'GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n';
    for (const first of [slow, fast]) {
      const statuses = await talk(area.port, [first + fast + tails.rubbish]);
      const own = [first === slow ? 403 : 404, 404];
      expect(statuses.slice(0, 2)).toEqual(own.slice(0, statuses.length));
    }
  });
});
