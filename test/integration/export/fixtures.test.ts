import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createExportArea, type Call, type Credentials, type RunningArea } from '../../helpers/export-area.ts';
import { importedEvents, oracleApps, toFixtureEvent } from '../../helpers/export-events.ts';
import { dateInZone, encodeSet, expectedRows, parseCsv, type OracleRequest } from '../../helpers/export-oracle.ts';
import { temporaryFolder } from '../../helpers/folder.ts';
import { inTurn, inWholeRun } from '../../helpers/in-turn.ts';
import { writeLake } from '../../helpers/lake-fixture.ts';
import { runHere } from '../../helpers/worker-here.ts';

/**
 * A call that must give exactly the rows that the oracle computes. Without `query` the request is sent as a form body.
 */
interface ResultCase {
  readonly title: string;
  readonly request: OracleRequest;
  readonly method?: string;
  readonly query?: string;
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A call that must be refused. `detail` is the start of the text, `names` its other required parts. */
interface RefusalCase {
  readonly title: string;
  readonly query: string;
  readonly detail: string;
  readonly names?: readonly string[];
}

function readCases<T>(name: string): T[] {
  return JSON.parse(
    readFileSync(path.join(import.meta.dirname, '..', '..', 'fixtures', 'export', name), 'utf8'),
  ) as T[];
}

const resultCases = [
  'events.json',
  'selectors.json',
  'parameters.json',
  'daylight.json',
  'forms.json',
  'people.json',
].flatMap((name) => readCases<ResultCase>(name));
/** Cases that this run tests. */
const askedCases = inTurn(resultCases, 8);
const refusalCases = readCases<RefusalCase>('refusals.json');
const create = '/api/raw/v1/export/create.json';

/**
 * Writes the times that depend on the moment of the test: `{now+100}` in Unix seconds, `{day+1}` as a date in Moscow.
 */
function fillTimes(text: string, nowSeconds: number): string {
  return text
    .replaceAll(/\{now([+-]\d+)\}/g, (_, shift: string) => String(nowSeconds + Number(shift)))
    .replaceAll(/\{day([+-]\d+)\}/g, (_, shift: string) =>
      dateInZone('Europe/Moscow', nowSeconds + Number(shift) * 86_400),
    );
}

function encode(request: OracleRequest): string {
  return Object.entries(request)
    .flatMap(([name, value]) => {
      if (typeof value === 'string') return [`${name}=${encodeURIComponent(value)}`];
      // Values of these may contain commas.
      if (name.startsWith('params'))
        return (value ?? []).map((item) => `${encodeURIComponent(name)}=${encodeURIComponent(item)}`);
      return name === 'eventName'
        ? (value ?? []).map((item) => `eventName[]=${encodeURIComponent(item)}`)
        : [`${name}=${encodeSet(value ?? [])}`];
    })
    .join('&');
}

describe('export cases', () => {
  const area = createExportArea(temporaryFolder());
  const ids = new Map<ResultCase, string>();
  let running: RunningArea;
  let user: Credentials;

  async function start(example: ResultCase): Promise<string> {
    const call: Call = {
      method: example.method ?? 'POST',
      body: example.query === undefined ? encode(example.request) : (example.body ?? ''),
      headers: example.headers ?? {},
    };
    const { body, ...withoutBody } = call;
    const answer = await running.call(
      user,
      example.query === undefined ? create : `${create}?${example.query}`,
      body === '' ? withoutBody : call,
    );
    expect(answer.json).toEqual({
      code: 200,
      message: 'Ok',
      data: { idRawExport: expect.stringMatching(/^[1-9]\d*$/) as unknown },
    });
    return String(answer.json?.data?.idRawExport);
  }

  beforeAll(async () => {
    for (const app of oracleApps) await area.addApp(app);
    user = await area.addUser({});
    const rows = importedEvents.map(toFixtureEvent);
    await writeLake(area.tableDir, [rows.slice(0, 100), rows.slice(100, 400), rows.slice(400, 1000), rows.slice(1000)]);
    running = await area.start({ runAttempt: runHere, maxExports: 1000 });
    // All requests run concurrently; each test then waits for its own.
    for (const example of askedCases) ids.set(example, await start(example).catch((error: unknown) => String(error)));
  }, 180_000);
  afterAll(() => running.stop());

  it('There are at least 250 export cases', () => {
    expect(resultCases.length + refusalCases.length).toBeGreaterThanOrEqual(250);
  });

  for (const example of askedCases) {
    it(`The export has the rows of the oracle: ${example.title}`, async () => {
      const parts = await running.download(user, ids.get(example) ?? '');
      expect(parts).toHaveLength(1);
      expect(parseCsv(parts[0] ?? '')).toEqual(expectedRows(example.request, importedEvents));
    }, 120_000);
  }

  for (const example of refusalCases) {
    it(`The export is refused: ${example.title}`, async () => {
      const nowSeconds = Math.floor(Date.now() / 1000);
      const query = fillTimes(example.query, nowSeconds);
      const answer = await running.call(user, `${create}?${query}`, { method: 'POST' });
      const detail = answer.json?.data?.error?.detail ?? '';
      expect([answer.status, answer.json?.code, answer.json?.message]).toEqual([400, 400, 'Bad Request']);
      expect(detail.slice(0, fillTimes(example.detail, nowSeconds).length)).toBe(fillTimes(example.detail, nowSeconds));
      for (const name of example.names ?? []) expect(detail).toContain(name);
    });
  }

  it('The results of the export cases are not all empty', ({ skip }) => {
    inWholeRun(skip);
    let filled = 0;
    // The oracle is slow: it stops at the needed number.
    for (const { request } of resultCases)
      if (filled <= 130 && expectedRows(request, importedEvents).length > 1) filled += 1;
    expect(filled).toBeGreaterThan(130);
  });
});
