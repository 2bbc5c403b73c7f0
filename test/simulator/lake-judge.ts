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

/** A promise that did not hold. */
export class Violation extends Error {}

function assert(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Violation(what);
}

/** Holds the lake against the ledger, at any moment and at the end. */
export interface LakeJudge {
  /** Looks at the lake between two steps: whole commits, nothing doubled, invented or gone. */
  look(): Promise<LakeLook>;
  /** After a power cut: what was durable must still be there. */
  afterCut(): void;
  /** What is damaged or left over now; the start of a compactor has to put it right. */
  findUntidy(): Promise<string[]>;
  /** After the last step: everything in its place, and nothing left over. */
  judgeEnd(alarms: number): Promise<void>;
  /** How often the broker has lost messages. */
  losses(): number;
  /**
   * A compactor has lost its lock while it stood still: it may rename a file that another has sealed too, which only
   * the log then tells.
   */
  leaseLost(): void;
  /** The broker is about to lose messages: those that the lake has not for good may be missing. */
  beforeLoss(lost: readonly Uint8Array[]): Promise<void>;
}

function assertOnce(names: readonly string[], isKeyed: (name: string) => boolean, where: string): void {
  const seen = new Set<string>();
  for (const name of names) {
    // How often one under a key may be there is for the key's judge to say.
    assert(!seen.has(name) || isKeyed(name), `${where}: event ${name} is doubled`);
    seen.add(name);
  }
}

function assertStill(before: ReadonlySet<string>, now: ReadonlySet<string>, where: string): void {
  for (const id of before) assert(now.has(id), `${where}: event ${id} is gone`);
}

/** A request is one part of one commit: all its rows are seen, or none. */
function assertWhole({ names }: SentRequest, seen: ReadonlySet<string>): void {
  const there = names.filter((name) => seen.has(name)).length;
  assert(there === 0 || there === names.length, `a request is torn: ${there} of its ${names.length} events are seen`);
}

/** Says whether an operator has given rows another time since a version: the one way in which times may go back. */
function isRestamped(lakeDir: string, since: number): boolean {
  for (const { version, lake } of ownCommits(lakeDir)) {
    if (version <= since) return false;
    if (lake.cause === 'restamp') return true;
  }
  return false;
}

/** What a look has seen: names of events, and the newest time at which rows became available. */
interface Seen {
  readonly snapshot: ReadonlySet<string>;
  readonly glob: ReadonlySet<string>;
  readonly availableAtMs: number;
  readonly version: number;
}

/** Whose lake is judged, and by what. */
export interface Judged {
  readonly world: World;
  readonly ledger: Ledger;
  readonly broker: Broker;
  readonly lakeDir: string;
}

/** Creates the judge of a lake. */
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

  /** What was acknowledged before the clock first showed the watermark is there, or kept as failed. */
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

  /** Every event that was acknowledged is there, and none that nobody sent. */
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
    assert(totals !== undefined, 'there is no lake');
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

  /** What a check of the lake finds, and what is left over. */
  async function findUntidy(): Promise<string[]> {
    const { problems } = await checkLake(lakeDir);
    // Where the stream has lost messages, a file that no commit names may be all there is of them: it is put aside and
    // told of.
    const unexplained = problems.filter(
      ({ path: at }) => !at.startsWith(brokerLosses === 0 ? 'quarantine/foreign-' : 'quarantine/'),
    );
    const names = readdirSync(lakeDir, { recursive: true, encoding: 'utf8' });
    const left = names.filter(
      (name) => name.endsWith('.tmp') || name.includes('pending-') || name.startsWith('staging/'),
    );
    return [...unexplained.map((problem) => JSON.stringify(problem)), ...left.map((name) => `left over: ${name}`)];
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
