import { readdirSync } from 'node:fs';
import { checkLake } from '../../src/lake/check.ts';
import { listFailedFiles, readFailedFile } from '../../src/lake/files/failed-events.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readWatermarkMs } from '../../src/lake/watermark.ts';
import { readLakeStats } from '../../src/lake/history.ts';
import { createKeyJudge } from './key-judge.ts';
import type { Ledger, SentRequest } from './ledger.ts';
import type { Broker } from './broker.ts';
import { lookAtLake, newestCommit, ownCommits, type LakeLook } from './lake-look.ts';
import type { World } from './world.ts';

/** A broken promise. */
export class Violation extends Error {}

function assert(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Violation(what);
}

/** Compares the lake with the ledger, at any time and at the end. */
export interface LakeJudge {
  /** Asserts between two steps that commits are complete and that no event is duplicated, invented or missing. */
  look(): Promise<LakeLook>;
  /** Asserts after a power cut that the durable events still exist. */
  afterCut(): void;
  /** Lists damage and leftovers; the start of a compactor must repair them. */
  findUntidy(): Promise<string[]>;
  /** Asserts after the last step that every event is stored and nothing is left over. */
  judgeEnd(alarms: number): Promise<void>;
  /** Returns how often the broker has lost messages. */
  losses(): number;
  /**
   * Records that a suspended compactor has lost its lock. It may rename a file that another one has sealed too; only
   * the log shows this.
   */
  leaseLost(): void;
  /**
   * Records that the broker is about to lose messages; those that the lake has not committed durably may be missing.
   */
  beforeLoss(lost: readonly Uint8Array[]): Promise<void>;
}

function assertOnce(names: readonly string[], isKeyed: (name: string) => boolean, where: string): void {
  const seen = new Set<string>();
  for (const name of names) {
    // The key check counts how often an event under a key may appear.
    assert(!seen.has(name) || isKeyed(name), `${where}: event ${name} is doubled`);
    seen.add(name);
  }
}

function assertStill(before: ReadonlySet<string>, now: ReadonlySet<string>, where: string): void {
  for (const id of before) assert(now.has(id), `${where}: event ${id} is missing`);
}

/** Asserts that a commit has all rows of a request, or none. */
function assertWhole({ names }: SentRequest, seen: ReadonlySet<string>): void {
  const there = names.filter((name) => seen.has(name)).length;
  assert(there === 0 || there === names.length, `a request is torn: ${there} of its ${names.length} events are seen`);
}

/** Reports whether an operator has changed row times since a version; only this may set times back. */
function isRestamped(lakeDir: string, since: number): boolean {
  for (const { version, lake } of ownCommits(lakeDir)) {
    if (version <= since) return false;
    if (lake.cause === 'restamp') return true;
  }
  return false;
}

/** Names of events that a check has read, and the newest time at which rows became available. */
interface Seen {
  readonly snapshot: ReadonlySet<string>;
  readonly glob: ReadonlySet<string>;
  readonly availableAtMs: number;
  readonly version: number;
}

/** Lake to check, and its sources of truth. */
export interface Judged {
  readonly world: World;
  readonly ledger: Ledger;
  readonly broker: Broker;
  readonly lakeDir: string;
}

/** Creates the check of a lake. */
export function createLakeJudge({ world, ledger, broker, lakeDir }: Judged, lossesBefore = 0): LakeJudge {
  const keys = createKeyJudge(ledger);
  const nothing: Seen = { snapshot: new Set(), glob: new Set(), availableAtMs: 0, version: -1 };
  let last = nothing;
  let durable = nothing;
  let brokerLosses = lossesBefore;
  let isGlobExclusive = true;

  async function look(): Promise<LakeLook> {
    const seen = await lookAtLake(world.disk, lakeDir);
    const [snapshot, glob] = [new Set(seen.snapshot), new Set(seen.glob)];
    const requests = ledger.sent.flatMap((message) => message.requests);
    const keyed = new Set(requests.flatMap(({ key, names }) => (key === undefined ? [] : names)));
    assertOnce(seen.snapshot, (name) => keyed.has(name), 'snapshot');
    if (isGlobExclusive) assertOnce(seen.glob, (name) => keyed.has(name), 'glob');
    assertStill(last.snapshot, snapshot, 'snapshot');
    assertStill(last.glob, glob, 'glob');
    for (const request of requests) if (request.key === undefined) assertWhole(request, snapshot);
    const wrong = keys.findWrong(seen.snapshot);
    assert(wrong === undefined, wrong ?? '');
    await judgeWatermark(snapshot);
    const newest = newestCommit(lakeDir);
    const { version, availableAtMs } =
      newest === undefined ? last : { version: newest.version, availableAtMs: newest.lake.availableAtMs };
    assert(
      availableAtMs >= last.availableAtMs || isRestamped(lakeDir, last.version),
      `rows become available at ${availableAtMs}, before those that are there already: ${last.availableAtMs}`,
    );
    last = { snapshot, glob, availableAtMs, version };
    if (seen.isDurable) durable = last;
    return seen;
  }

  /** Asserts that events acknowledged before the clock first showed the watermark are stored or kept as failed. */
  async function judgeWatermark(snapshot: ReadonlySet<string>): Promise<void> {
    const watermarkMs = await readWatermarkMs(lakeDir, { nowMs: () => Infinity });
    if (watermarkMs === undefined) return;
    const shownMs = world.firstShownMs(watermarkMs);
    const due = ledger.sent.filter(
      ({ outcome, isLost, answeredMs }) => outcome === 'acknowledged' && !isLost && answeredMs < shownMs,
    );
    const names = due.flatMap(({ requests }) => requests.flatMap((request) => [...request.names, ...request.badNames]));
    const missing = names.filter((name) => !snapshot.has(name));
    world.count('watermarks');
    world.count('eventsBeforeWatermarks', names.length);
    if (missing.length === 0) return;
    const paths = lakePaths(lakeDir);
    const failed = await readFailedLines(paths.failed, paths.table);
    const [early] = missing.filter((name) => !failed.some((line) => line.includes(`"${name}"`)));
    assert(early === undefined, `the watermark ${watermarkMs} is early: event ${early} is not there`);
  }

  /** Asserts that every acknowledged event is stored, and that none was invented. */
  async function judgeEvents(): Promise<void> {
    const { snapshot } = await look();
    const stored = new Set(snapshot);
    const sent = new Set(ledger.sent.flatMap(({ requests }) => requests.flatMap(({ names }) => names)));
    for (const name of stored) assert(sent.has(name), `event ${name} was never sent`);
    const paths = lakePaths(lakeDir);
    const failedLines = await readFailedLines(paths.failed, paths.table);
    const kept = (name: string): number => failedLines.filter((line) => line.includes(`"${name}"`)).length;
    for (const { outcome, isLost, requests } of ledger.sent) {
      if (outcome !== 'acknowledged' || isLost) continue;
      for (const { key, names, badNames } of requests) {
        if (key === undefined)
          for (const name of names) assert(stored.has(name), `event ${name} was acknowledged and is lost`);
        for (const name of badNames)
          assert(
            kept(name) === 1 || (kept(name) > 1 && brokerLosses > 0),
            `bad event ${name} is kept ${kept(name)} times among the failed ones`,
          );
      }
    }
    const wrong = keys.findWrongAtEnd(snapshot, kept, brokerLosses === 0 ? broker.history : undefined);
    assert(wrong === undefined, wrong ?? '');
    const totals = newestCommit(lakeDir)?.lake.totals;
    assert(totals !== undefined, 'the lake is missing');
    assert(totals.stored === snapshot.length, `the log counts ${totals.stored} rows, and there are ${snapshot.length}`);
    assert(
      totals.failed === failedLines.length,
      `the log counts ${totals.failed} failed events, and ${failedLines.length} are kept`,
    );
    assert(
      totals.streamed === totals.stored + totals.failed + totals.repeats + totals.erased,
      `the totals do not add up: ${JSON.stringify(totals)}`,
    );
    assert(
      (await readLakeStats(lakeDir)).groups.reduce((sum, group) => sum + group.rows, 0) === totals.stored,
      'the rows by kind and date do not add up',
    );
  }

  /** Lists the findings of a lake check, and leftovers. */
  async function findUntidy(): Promise<string[]> {
    const { problems } = await checkLake(lakeDir);
    // After a loss of messages, a file that no commit names may have their only copy: it is quarantined and reported.
    const unexplained = problems.filter(
      ({ path: at }) => !at.startsWith(brokerLosses === 0 ? 'quarantine/foreign-' : 'quarantine/'),
    );
    const names = readdirSync(lakeDir, { recursive: true, encoding: 'utf8' });
    const left = names.filter(
      (name) => name.endsWith('.tmp') || name.includes('pending-') || name.startsWith('staging/'),
    );
    return [...unexplained.map((finding) => JSON.stringify(finding)), ...left.map((name) => `left over: ${name}`)];
  }

  return {
    look,
    losses: () => brokerLosses,
    leaseLost: () => void (isGlobExclusive = false),
    findUntidy,
    afterCut() {
      last = { ...durable, glob: new Set() };
    },
    async judgeEnd(alarms) {
      await judgeEvents();
      const untidy = await findUntidy();
      assert(untidy.length === 0, untidy.join('; '));
      assert(brokerLosses > 0 || alarms === 0, `${alarms} alarms, and the broker has lost nothing`);
    },
    async beforeLoss(payloads) {
      const { snapshot, isDurable } = await look();
      const there = new Set(isDurable ? snapshot : []);
      brokerLosses += 1;
      for (const message of payloads.flatMap((payload) => ledger.find(payload))) {
        if (
          !message.requests.every(
            ({ names, badNames }) => badNames.length === 0 && names.every((name) => there.has(name)),
          )
        )
          message.isLost = true;
      }
    },
  };
}

async function readFailedLines(folder: string, tableDir: string): Promise<string[]> {
  const lines: string[] = [];
  for (const file of await listFailedFiles(folder, tableDir))
    lines.push(...(await readFailedFile(file)).map(({ line }) => line));
  return lines;
}
