import path from 'node:path';
import type { StreamConfig } from '@nats-io/jetstream';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { balanceAccounts, waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosFigure, chaosSeed, inLongForm, isLongRun } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { copyRunningFolder, temporaryFolder, testFolder } from '../helpers/folder.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { countLake, createLedger, type Ledger } from '../helpers/ledger.ts';
import { startLoad, type Load } from '../helpers/load.ts';
import { startTestNats, type TestNats } from '../helpers/nats.ts';
import { operatorOf } from '../helpers/owned-stream.ts';
import { readReadiness, readStatusProblems } from '../helpers/problems.ts';
import { isAlive, listTree, signalProcess } from '../helpers/processes.ts';
import { startTestService } from '../helpers/service.ts';
import { addTestApp, type ServiceWithApp } from '../helpers/service-access.ts';
import { waitFor } from '../helpers/wait.ts';

/** Services on one external broker, and an operator who changes the stream of a running service. */

const rounds = chaosFigure('TRIBUTARY_TEST_OWNERS', { short: 1, long: 4 });
const seed = chaosSeed();
const again = `make chaos PART=stream-owners SEED=${seed}`;
const random = createRandom(seed);
/** For a machine that runs other tests. */
const patienceMs = 60_000;

let nats: TestNats;
beforeAll(async () => {
  nats = await startTestNats({ streamMaxBytes: 'none' });
});
afterAll(() => nats.stop());

let names = 0;
function nextName(): string {
  names += 1;
  return `OWNERS_${names}`;
}

function settingsFor(stream: string): Record<string, string> {
  const { url, address } = nats.current();
  return {
    TRIBUTARY_NATS_URL: url.replace('nats://', `nats://${address.user}:${address.password}@`),
    TRIBUTARY_STREAM: stream,
    TRIBUTARY_STREAM_MAX_BYTES: String(2 ** 23),
    TRIBUTARY_INGEST_WORKERS: '1',
  };
}

async function startParty(dataDir: string, settings: Record<string, string>): Promise<ServiceWithApp> {
  const token = await addTestApp(dataDir);
  return { service: await startTestService({ dataDir, settings }), token };
}

function send({ service, token }: ServiceWithApp, ledger: Ledger): Load {
  return startLoad(ledger, {
    s2s: () => service.s2s,
    idApp: 1,
    token,
    random,
    clients: 4,
    pauseMs: isLongRun ? 5 : 20,
  });
}

/** Sends until `more` events are acknowledged. */
async function sendUntil(party: ServiceWithApp, ledger: Ledger, more: number): Promise<void> {
  const wanted = ledger.totals().acknowledged + more;
  const load = send(party, ledger);
  await waitFor(`${more} events are acknowledged`, () => ledger.totals().acknowledged >= wanted, patienceMs);
  await load.stop();
}

async function idsIn(dataDir: string): Promise<Set<string>> {
  return new Set((await countLake(dataDir)).map(({ id }) => id));
}

const lostFrom = (ledger: Ledger, ...lakes: ReadonlySet<string>[]): string[] =>
  ledger.ids('acknowledged').filter((id) => !lakes.some((lake) => lake.has(id)));
const ofLedger = (ledger: Ledger, lake: ReadonlySet<string>): string[] =>
  [...lake].filter((id) => ledger.indexOf(id) >= 0);

async function refusalOf(dataDir: string, settings: Record<string, string>): Promise<string> {
  return await startTestService({ dataDir, settings }).then(
    async (service) => {
      await service.destroy();
      throw new Error(`a second service was accepted on ${dataDir}`);
    },
    (error: unknown) => String(error),
  );
}

describe('a second owner', () => {
  it(
    'A second owner of one stream is rejected or commits nothing, and no acknowledged event is lost or stored in another lake',
    async ({ skip }) => {
      inLongForm(skip);
      const figures = { ways: 0, acknowledged: 0, lost: 0, intoAnothersData: 0, committedByTheFormerOwner: 0 };
      for (let round = 0; round < rounds; round += 1) {
        const [stream, folder] = [nextName(), testFolder()];
        const [here, elsewhere, copy] = ['a', 'b', 'a-copy'].map((name) => path.join(folder, name)) as [
          string,
          string,
          string,
        ];
        const settings = settingsFor(stream);
        const party = await startParty(here, settings);
        onTestFinished(() => party.service.destroy());
        const ledger = createLedger('first');
        await sendUntil(party, ledger, 200);

        // Another data folder, and a copy of this one, while it runs.
        const load = send(party, ledger);
        const refused = await refusalOf(elsewhere, settings);
        expect(refused).toContain(`belongs to the lake`);
        expect(refused).toContain(here);
        expect(refused).toContain(elsewhere);
        copyRunningFolder(here, copy);
        expect(await refusalOf(copy, settings)).toMatch(new RegExp(`in use by the service of ${here} .*${copy}`));
        figures.ways += 2;
        await load.stop();

        // The owner is suspended for longer than its lease, with uncommitted events of a batch.
        await sendUntil(party, ledger, 100 + random.integer(0, 200));
        await party.service.freeze();
        const committed = await idsIn(here);
        const second = { service: await startTestService({ dataDir: copy, settings }), token: party.token };
        onTestFinished(() => second.service.destroy());
        const ledgerOfCopy = createLedger('second');
        await sendUntil(second, ledgerOfCopy, 100);
        for (const pid of listTree(party.service.pid)) if (isAlive(pid)) signalProcess(pid, 'SIGCONT');
        const ledgerOfFormer = createLedger('former');
        const late = send(party, ledgerOfFormer);
        await waitFor(
          'the former owner says whose the stream is',
          async () =>
            (await readReadiness(party.service))?.problems.some(({ message }) => message.includes(copy)) === true,
          patienceMs,
        );
        await waitFor('the former owner refuses', () => ledgerOfFormer.totals().sent > 8);
        await sendUntil(second, ledgerOfCopy, 100);
        await late.stop();
        expect((await readStatusProblems(party.service)).length).toBeGreaterThan(0);
        figures.ways += 1;

        await waitUntilWorkedOff(second.service);
        await party.service.stop();
        await second.service.stop();
        const [former, now] = [await idsIn(here), await idsIn(copy)];
        figures.acknowledged += ledger.totals().acknowledged + ledgerOfCopy.totals().acknowledged;
        figures.lost += lostFrom(ledger, former, now).length + lostFrom(ledgerOfCopy, now).length;
        figures.intoAnothersData +=
          ofLedger(ledgerOfCopy, former).length +
          ofLedger(ledgerOfFormer, now).length +
          ofLedger(ledgerOfFormer, former).length;
        figures.committedByTheFormerOwner += [...former].filter((id) => !committed.has(id)).length;
        expect(ledgerOfFormer.totals().acknowledged).toBe(0);
      }
      const reached = figures.lost + figures.intoAnothersData + figures.committedByTheFormerOwner === 0;
      recordFinding({
        promise: 'P14',
        what: 'a second owner of one stream: another folder, a copied one, a suspended owner',
        wanted: '0 lost, 0 in data of another',
        figures,
        reached,
        seed,
        again,
      });
      expect(figures).toMatchObject({ lost: 0, intoAnothersData: 0, committedByTheFormerOwner: 0 });
    },
    240_000 * rounds,
  );
});

describe('services that share a cluster on purpose', () => {
  const streams = [nextName(), nextName()] as const;
  const ledgers = [createLedger('one'), createLedger('two')] as const;
  const folder = temporaryFolder();
  let parties: readonly [ServiceWithApp, ServiceWithApp];
  beforeAll(async () => {
    parties = [
      await startParty(path.join(folder, 'one'), settingsFor(streams[0])),
      await startParty(path.join(folder, 'two'), settingsFor(streams[1])),
    ];
  }, 240_000);
  afterAll(() => Promise.all(parties.map(({ service }) => service.destroy())));

  it('Services that share a cluster each have their own stream and their own events', async () => {
    await Promise.all([0, 1].map((index) => sendUntil(parties[index as 0 | 1], ledgers[index as 0 | 1], 200)));
    const lakes: Set<string>[] = [];
    for (const { service } of parties) {
      await waitUntilWorkedOff(service);
      lakes.push(await idsIn(service.dataDir));
    }
    const [one, two] = lakes as [Set<string>, Set<string>];
    const figures = {
      acknowledged: ledgers[0].totals().acknowledged + ledgers[1].totals().acknowledged,
      lost: lostFrom(ledgers[0], one).length + lostFrom(ledgers[1], two).length,
      mixed: ofLedger(ledgers[0], two).length + ofLedger(ledgers[1], one).length,
    };
    recordFinding({
      promise: 'P14',
      what: 'two services that share a cluster on purpose',
      wanted: 'each its own events',
      figures,
      reached: figures.lost + figures.mixed === 0,
      seed,
      again,
    });
    expect(figures).toMatchObject({ lost: 0, mixed: 0 });
  }, 240_000);

  const changes: readonly (readonly [string, Partial<StreamConfig>])[] = [
    ['discard', { discard: 'old' }],
    ['max_age', { max_age: 30_000_000_000, duplicate_window: 30_000_000_000 }],
    ['retention', { retention: 'interest' }],
    ['max_msgs', { max_msgs: 1 }],
  ];

  it('Services that share a cluster lose nothing when an operator changes a stream: each setting is restored at once, with a notice', async () => {
    const [[party], [ledger], [stream]] = [parties, ledgers, streams];
    const operator = await operatorOf(nats);
    // Keeps messages that the change to interest retention would remove at once, before a service can react.
    await operator.consumers.add(stream, { durable_name: 'audit', ack_policy: 'explicit' });
    const load = send(party, ledger);
    const asked = inTurn(changes, 4);
    for (const [setting, change] of asked) {
      const before = ledger.totals().acknowledged;
      await waitFor('events flow', () => ledger.totals().acknowledged > before + 100);
      await operator.streams.update(stream, change);
      await waitFor(
        `${setting} is reported`,
        async () => JSON.stringify((await party.service.status())['warnings']).includes(`${setting} is `),
        patienceMs,
      );
    }
    const before = ledger.totals().acknowledged;
    await waitFor('events flow again', () => ledger.totals().acknowledged > before + 100);
    await load.stop();
    await waitUntilWorkedOff(party.service);
    await party.service.stop();
    const { results } = await balanceAccounts(party.service.dataDir, [ledger]);
    expect(results[0]?.lost).toEqual([]);
    recordFinding({
      promise: 'P1',
      what: 'a stream whose settings its operator changes',
      wanted: '0 lost',
      figures: { changes: asked.length, acknowledged: ledger.totals().acknowledged, lost: 0 },
      reached: true,
      seed,
      again,
    });
  }, 240_000);

  it('Services that share a cluster resume within seconds when their stream is deleted: it is recreated with an alarm and the next epoch', async () => {
    const [[, party], [, ledger], [, stream]] = [parties, ledgers, streams];
    const operator = await operatorOf(nats);
    for (let deletions = 1; deletions <= 2; deletions += 1) {
      await waitUntilWorkedOff(party.service);
      await operator.streams.delete(stream);
      await sendUntil(party, ledger, 100);
    }
    await waitUntilWorkedOff(party.service);
    // The status reports the state of the processes within a second or two.
    let notices: { message: string }[] = [];
    const count = (what: string): number => notices.filter((notice) => notice.message.includes(what)).length;
    await waitFor('both deletions are reported, and nothing is wrong any more', async () => {
      const status = await party.service.status();
      notices = status['warnings'] as typeof notices;
      return (status['problems'] as unknown[]).length === 0 && count('the stream was recreated') >= 2;
    });
    expect(count('was deleted while the service ran')).toBe(2);
    expect(count('the stream was recreated')).toBe(2);
    expect((await readReadiness(party.service))?.problems).toEqual([]);
    await party.service.stop();
    await balanceAccounts(party.service.dataDir, [ledger]);
  }, 240_000);
});
