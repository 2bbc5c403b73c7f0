import { Agent } from 'node:http';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/cli/demo/random.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readSnapshot } from '../../src/lake/snapshot.ts';
import { chaosSeed } from '../helpers/chaos.ts';
import { testFolder } from '../helpers/folder.ts';
import { sendRaw } from '../helpers/http.ts';
import { countLake, idParam } from '../helpers/ledger.ts';
import { runCommand, startTestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const requests = 10_000;
const replays = 3;
const reused = 25;
const clients = 40;
const seed = chaosSeed();
const killed = ['nats-server', 'ingest', 'compact'] as const;

describe('an Idempotency-Key', () => {
  it(`stores ${requests} requests once, sent ${replays + 1} times through kills of the broker, ingest and the compactor (seed ${seed})`, { timeout: 300_000 }, async () => {
    const random = createRandom(seed);
    const dataDir = path.join(testFolder(), 'data');
    const app = await runCommand(['app', 'add', '1', '--platform', 'web', '--data', dataDir]);
    const service = await startTestService({ dataDir, settings: { TRIBUTARY_LOG_LEVEL: 'warn' } });
    onTestFinished(() => service.destroy());
    const port = Number(new URL(service.s2s).port);
    const agent = new Agent({ keepAlive: true, maxSockets: clients });
    onTestFinished(() => agent.destroy());

    /** Sends a request again and again until it is acknowledged, as the contract tells clients to. */
    const send = async (number: number, id: string): Promise<void> => {
      const body = Buffer.from(JSON.stringify({ customUserId: 'u', customEventName: id, customEventParams: { [idParam]: id } }));
      const headers = { authorization: String(app['token']), 'idempotency-key': `key-${number}` };
      const acknowledged = (): Promise<boolean> =>
        sendRaw(port, { verb: 'POST', path: '/v1/customEvent/?idApp=1', headers, body, agent }).then((answer) => answer.status === 200, () => false);
      await waitFor(`request ${number} is acknowledged`, acknowledged, 60_000);
    };

    /** Sends numbers over the clients; `onSent` is told how many are through. */
    const sendAll = async (count: number, idOf: (number: number) => string, onSent: (sent: number) => void): Promise<void> => {
      let next = 0;
      let sent = 0;
      const client = async (): Promise<void> => {
        for (let number = next++; number < count; number = next++) {
          await send(number, idOf(number));
          sent += 1;
          onSent(sent);
        }
      };
      await Promise.all(Array.from({ length: clients }, client));
    };

    for (let pass = 0; pass <= replays; pass += 1) {
      const kills: Promise<unknown>[] = [];
      await sendAll(requests, (number) => `r-${number}`, (sent) => {
        const role = killed[(sent * (killed.length + 1)) / requests - 1];
        if (role !== undefined) kills.push(service.kill9(role, random));
      });
      await Promise.all(kills);
    }
    await sendAll(reused, (number) => `another-${number}`, () => undefined);

    const totals = async () => (await readSnapshot(lakePaths(path.join(dataDir, 'lake')).table)).lake?.totals;
    await waitFor('the lake has accounted for every request', async () => {
      const { stored = 0, repeats = 0, failed = 0 } = (await totals()) ?? {};
      return stored + repeats + failed >= requests * (replays + 1) + reused;
    });
    expect(await totals()).toMatchObject({ stored: requests, failed: reused });
    const rows = await countLake(dataDir);
    expect(rows.length).toBe(requests);
    expect(rows.filter((row) => row.rows !== 1 || !row.whole || !row.id.startsWith('r-'))).toEqual([]);
    await service.stop();
  });
});
