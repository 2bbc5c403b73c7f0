import path from 'node:path';
import { onTestFinished, describe, expect, it } from 'vitest';
import { createRandom, type Random } from '../../src/cli/demo/random.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { testFolder } from '../helpers/folder.ts';
import { assertExactlyOnce, countLake, createLedger, describeReconciliation, reconcile, type Ledger, type Reconciliation } from '../helpers/ledger.ts';
import { startLoad } from '../helpers/load.ts';
import { processRoles, type ProcessRole } from '../helpers/processes.ts';
import { runCommand, startTestService, type TestService } from '../helpers/service.ts';
import { waitFor } from '../helpers/wait.ts';

const kills = chaosFigure('TRIBUTARY_TEST_KILLS', { short: 30, long: 1000 });
const seed = chaosSeed();
/** The service has recovered when it has acknowledged a random number of further events between these two. */
const recoveredEvents = { least: 20, most: 1000 } as const;
const recoveryMs = 60_000;

const say = (text: string): void => void process.stderr.write(`kills: ${text}\n`);

/** Every role in random order, again and again, so that a short run kills each of them too. */
function* killOrder(random: Random): Generator<ProcessRole, never, void> {
  for (;;) {
    const round = [...processRoles];
    while (round.length > 0) yield round.splice(random.integer(0, round.length - 1), 1)[0] as ProcessRole;
  }
}

/** Asks for an export of everything, so that there is a job's process to kill; the answer is not needed. */
async function requestExport(service: TestService, user: Record<string, unknown>): Promise<void> {
  const today = new Date().toISOString().slice(0, 10);
  const query = new URLSearchParams({ event: 'customEvents', selectors: 'eventId,eventName,params.name,params.value', dateFrom: today, dateTo: today, timezone: 'UTC' });
  const authorization = `Basic ${Buffer.from(`${String(user['idUser'])}:${String(user['secret'])}`).toString('base64')}`;
  await fetch(`${service.api}/api/raw/v1/export/create.json?${query.toString()}`, { method: 'POST', headers: { authorization } }).catch(() => undefined);
}

/** Kills one process of a role and brings back what does not come back by itself. Says whether one was there to kill. */
async function killOne(service: TestService, role: ProcessRole, random: Random, user: Record<string, unknown>): Promise<boolean> {
  if (role === 'job') {
    await requestExport(service, user);
    // the request may be refused, the service having just been killed, and a short job may be over before it is seen
    await waitFor('an export job runs', () => service.processes().some((found) => found.role === 'job'), 2000).catch(() => undefined);
  }
  const pid = await service.kill9(role, random);
  if (role === 'supervisor') await service.startAgain();
  return pid !== undefined;
}

async function reconcileAll(service: TestService, ledgers: readonly Ledger[]): Promise<Reconciliation[]> {
  const rows = await countLake(service.dataDir);
  const results = ledgers.map((ledger) => reconcile(ledger, rows.filter((row) => row.id.startsWith(`${ledger.name}-`))));
  expect(results.reduce((sum, result) => sum + result.stored, 0)).toBe(rows.length);
  return results;
}

describe('kill -9', () => {
  it(
    `of any process, ${kills} times while events flow, loses, doubles and invents nothing`,
    async () => {
      say(`seed ${seed}; again: make chaos KILLS=${kills} SEED=${seed}`);
      const random = createRandom(seed);
      const settings = { TRIBUTARY_QUOTA_USER: 'off', TRIBUTARY_QUOTA_IP: 'off', TRIBUTARY_SEAL_AGE_MS: '5000', TRIBUTARY_LOG_LEVEL: 'warn' };
      const dataDir = path.join(testFolder(), 'data');
      // before the start: a running service may take a second to know them, and refuse the first events
      const app = await runCommand(['app', 'add', '1', '--platform', 'web', '--data', dataDir]);
      const user = await runCommand(['user', 'add', 'analyst', '--account', '1', '--data', dataDir]);
      const service = await startTestService({ dataDir, settings });
      onTestFinished(() => service.destroy());

      const once = createLedger('once');
      const keyed = createLedger('keyed');
      const refusals: string[] = [];
      const onProblem = (status: number, text: string): void => void (status >= 400 && status < 500 && refusals.push(`${status} ${text}`));
      const client = { s2s: () => service.s2s, idApp: 1, token: String(app['token']), random, clients: 2, pauseMs: 10, onProblem };
      const loads = [startLoad(once, client), startLoad(keyed, { ...client, idempotencyKeys: true })];
      const acknowledged = (): number => once.totals().acknowledged + keyed.totals().acknowledged;
      const recovered = async (): Promise<void> => {
        const enough = acknowledged() + random.integer(recoveredEvents.least, recoveredEvents.most);
        await waitFor('the service acknowledges again', () => acknowledged() >= enough, recoveryMs);
      };

      await recovered();
      const order = killOrder(random);
      const killed = new Map<ProcessRole, number>();
      for (let done = 0; done < kills; ) {
        const role = order.next().value;
        if (await killOne(service, role, random, user)) {
          done += 1;
          killed.set(role, (killed.get(role) ?? 0) + 1);
        }
        await recovered();
      }
      say(`killed ${[...killed].map(([role, times]) => `${role} ${times}`).join(', ')}`);
      await Promise.all(loads.map((load) => load.stop()));

      await waitFor(
        'the lake has every acknowledged event',
        async () => (await reconcileAll(service, [once, keyed])).every((result) => result.lost.length === 0),
        recoveryMs,
      );
      await service.stop();
      const results = await reconcileAll(service, [once, keyed]);
      for (const [index, result] of results.entries()) say(`${['sent once', 'sent again under a key'][index] ?? ''}: ${describeReconciliation(result)}`);
      for (const result of results) assertExactlyOnce(result);
      expect(results[1]?.unknown).toBe(0);
      expect(refusals).toEqual([]);
    },
    120_000 + kills * 20_000,
  );
});
