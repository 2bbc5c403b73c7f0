import { createHash } from 'node:crypto';
import { connect } from 'node:net';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { createExportArea, send, type RunningArea } from '../helpers/export-area.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { startTestIngest, testApps, type TestIngest } from '../helpers/ingest.ts';
import { rawTalks, type RawTalk } from '../helpers/raw-requests.ts';

const connections = chaosFigure('TRIBUTARY_TEST_RAW_CONNECTIONS', { short: 700, long: 50_000 });
const seed = chaosSeed();
const atOnce = 25;
/** Each exchange has its own event, so that stored events can be compared with responses. */
const roundTalks = 500;

const figures = {
  rawConnections: 0,
  answers: 0,
  answersOf500: 0,
  acceptedEvents: 0,
  storedThoughRefused: 0,
  smuggledEvents: 0,
  unansweredRequests: 0,
};

/** Sends bytes on a new connection and ends it; returns all received bytes. */
function talk(port: number, text: string): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    let answer = '';
    socket.on('data', (data) => void (answer += data.toString('latin1')));
    socket.once('error', () => undefined);
    socket.once('close', () => resolve(answer));
    socket.end(text, 'latin1');
  });
}

/**
 * Returns the id of the n-th event: so different from the others that changed or dropped bytes never give another one.
 */
function idOf(n: number): string {
  return createHash('sha256').update(String(n)).digest('hex').slice(0, 16);
}

function eventOf(customUserId: string): string {
  return JSON.stringify({ customUserId });
}

function statusesOf(answer: string): number[] {
  return [...answer.matchAll(/HTTP\/1\.1 (\d{3})/g)]
    .map(([, status]) => Number(status))
    .filter((status) => status !== 100);
}

describe(`malformed bytes (seed ${seed})`, () => {
  const [folder, areaDir] = [temporaryFolder(), temporaryFolder()];
  let service: TestIngest;
  let exporter: RunningArea;
  let sent = 0;

  beforeAll(async () => {
    service = await startTestIngest(folder, {
      answerWithinMs: 30_000,
      limits: { headersTimeoutMs: 2000, requestTimeoutMs: 3000, checkIntervalMs: 200 },
    });
    exporter = await createExportArea(areaDir).start({
      limits: { headersTimeoutMs: 2000, requestTimeoutMs: 3000, checkIntervalMs: 200 },
    });
  });
  afterAll(async () => {
    await exporter.stop();
    await service.stop();
    recordFinding({
      promise: 'P12',
      what: 'invalid requests, on raw sockets: two lengths, odd chunks and heads, halves, rubbish',
      wanted: `${connections.toLocaleString('en-US')} connections: 0 answers of 500 while healthy, 0 crashes, 0 stored of what was refused or smuggled`,
      figures,
      reached:
        figures.rawConnections >= connections &&
        figures.answersOf500 + figures.storedThoughRefused + figures.smuggledEvents === 0,
      seed,
      again: `make chaos PART=hostile-bytes SEED=${seed}`,
    });
  });

  /** Sends an exchange to both areas. Reports whether import accepted its event, or did not respond at all. */
  async function sendBoth({ kind, text }: RawTalk): Promise<boolean> {
    const [toImport, toExport] = await Promise.all([talk(service.ingest.port, text), talk(exporter.port, text)]);
    const statuses = [...statusesOf(toImport), ...statusesOf(toExport)];
    figures.rawConnections += 2;
    figures.answers += statuses.length;
    if (toImport === '') figures.unansweredRequests += 1;
    if (statuses.some((status) => status >= 500)) {
      figures.answersOf500 += 1;
      throw new Error(`${kind} answered ${statuses.join()}: ${JSON.stringify(text.slice(0, 500))}`);
    }
    return toImport === '' || statusesOf(toImport).includes(200);
  }

  it(
    'Malformed bytes cause no 500 in either area, and nothing is stored without a 200',
    { timeout: 900_000 },
    async () => {
      for (let round = 0; figures.rawConnections < connections; round += 1) {
        // Each exchange has its own event; its kind and the event's offset come from the seed.
        const made = fc.sample(fc.nat(), { seed: seed + round, numRuns: roundTalks }).map((number) => {
          const id = idOf((sent += 1));
          const target = {
            path: `/v1/login/?idApp=${testApps.web}`,
            authorization: service.tokens.web,
            body: eventOf(id),
            smuggled: eventOf(`smuggled-${idOf(sent)}`),
          };
          return {
            id,
            talk: fc.sample(rawTalks(target), { seed: number, numRuns: 1 })[0] ?? { kind: 'none', text: '' },
          };
        });
        const mayBeStored = new Set<string>();
        let next = 0;
        const client = async (): Promise<void> => {
          for (let one = made[next++]; one !== undefined; one = made[next++])
            if (await sendBoth(one.talk)) mayBeStored.add(one.id);
        };
        await Promise.all(Array.from({ length: atOnce }, client));
        const stored = (await service.newLines()).map((line) => String(line['custom_user_id']));
        figures.acceptedEvents += stored.length;
        figures.smuggledEvents += stored.filter((id) => id.startsWith('smuggled-')).length;
        // A byte changed within the id gives an unknown id: it was accepted like any other event.
        figures.storedThoughRefused += stored.filter(
          (id) => made.some((one) => one.id === id) && !mayBeStored.has(id),
        ).length;
        expect([figures.smuggledEvents, figures.storedThoughRefused]).toEqual([0, 0]);
      }
      expect(figures.acceptedEvents).toBeGreaterThan(0);
    },
  );

  it('After malformed bytes both areas handle the next valid request', async () => {
    expect(await service.post('web', 'login', { customUserId: 'good' })).toMatchObject({ status: 200 });
    expect((await send(exporter.port, '/api/dictionary/v1/rooted.json')).status).toBe(200);
  });
});
