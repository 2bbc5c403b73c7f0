import { readdirSync } from 'node:fs';
import { checkLake } from '../../src/lake/check.ts';
import { listFailedFiles, readFailedFile } from '../../src/lake/failed-events.ts';
import { lakePaths } from '../../src/lake/lake.ts';
import { readLakeStats } from '../../src/lake/history.ts';
import { fingerprintOf, isKeyedId, requestKeyOf } from '../../src/model/event-id.ts';
import { identityOf, type Ledger, type SentMessage } from './ledger.ts';
import { lookAtLake, newestCommit, type LakeLook } from './lake-look.ts';
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
  /** The broker is about to lose messages: those that the lake has not for good may be missing. */
  beforeLoss(lost: readonly Uint8Array[]): Promise<void>;
}

function assertOnce(ids: readonly string[], where: string): void {
  const identities = ids.map(identityOf);
  const seen = new Set<string>();
  for (const identity of identities) {
    assert(!seen.has(identity), `${where}: event ${identity} is doubled`);
    seen.add(identity);
  }
}

/** Whatever comes under a key: the lake has events of one request. */
function assertOneRequest(ids: readonly string[], where: string): void {
  const requests = new Map<string, string>();
  for (const id of ids.filter(isKeyedId)) {
    const print = fingerprintOf(id);
    assert((requests.get(requestKeyOf(id)) ?? print) === print, `${where}: the key of ${id} stands for two requests`);
    requests.set(requestKeyOf(id), print);
  }
}

function assertStill(before: ReadonlySet<string>, now: ReadonlySet<string>, where: string): void {
  for (const id of before) assert(now.has(id), `${where}: event ${id} is gone`);
}

/** A message is one part of one commit: all its rows are seen, or none. Keyed repeats are dropped by the row. */
function assertWhole({ ids }: SentMessage, seen: ReadonlySet<string>): void {
  const own = ids.filter((id) => identityOf(id) === id);
  const there = own.filter((id) => seen.has(id)).length;
  assert(there === 0 || there === own.length, `a message is torn: ${there} of its ${own.length} events are seen`);
}

/** Creates the judge of a lake. */
export function createLakeJudge(world: World, ledger: Ledger, lakeDir: string): LakeJudge {
  let last: { snapshot: ReadonlySet<string>; glob: ReadonlySet<string> } = { snapshot: new Set(), glob: new Set() };
  let durable: ReadonlySet<string> = new Set();
  let brokerLosses = 0;

  async function look(): Promise<LakeLook> {
    const seen = await lookAtLake(world.disk, lakeDir);
    const [snapshot, glob] = [new Set(seen.snapshot), new Set(seen.glob)];
    assertOnce(seen.snapshot, 'snapshot');
    assertOnce(seen.glob, 'glob');
    assertOneRequest(seen.snapshot, 'snapshot');
    assertStill(last.snapshot, snapshot, 'snapshot');
    assertStill(last.glob, glob, 'glob');
    for (const message of ledger.sent) assertWhole(message, snapshot);
    last = { snapshot, glob };
    if (seen.isDurable) durable = snapshot;
    return seen;
  }

  /** Every event that was acknowledged is there, and none that nobody sent. */
  async function judgeEvents(): Promise<void> {
    const { snapshot } = await look();
    const sentIds = new Set(ledger.sent.flatMap(({ ids }) => ids));
    for (const id of snapshot) assert(sentIds.has(id), `event ${id} was never sent`);
    const stored = new Set(snapshot);
    const paths = lakePaths(lakeDir);
    const failedLines = await readFailedLines(paths.failed, paths.table);
    for (const { outcome, isLost, ids, badIds } of ledger.sent) {
      if (outcome !== 'acknowledged' || isLost) continue;
      // A request whose key stands for another one is kept as it was sent.
      for (const id of ids) assert(stored.has(id) || (isKeyedId(id) && failedLines.some((line) => line.includes(id))), `event ${id} was acknowledged and is lost`);
      for (const id of badIds) {
        const times = failedLines.filter((line) => line.includes(id)).length;
        assert(times === 1 || (times > 1 && brokerLosses > 0), `bad event ${id} is kept ${times} times among the failed ones`);
      }
    }
    const totals = newestCommit(lakeDir)?.lake.totals;
    assert(totals !== undefined, 'there is no lake');
    assert(totals.stored === snapshot.length, `the log counts ${totals.stored} rows, and there are ${snapshot.length}`);
    assert(totals.failed === failedLines.length, `the log counts ${totals.failed} failed events, and ${failedLines.length} are kept`);
    assert(totals.streamed === totals.stored + totals.failed + totals.repeats + totals.erased, `the totals do not add up: ${JSON.stringify(totals)}`);
    assert((await readLakeStats(lakeDir)).groups.reduce((sum, group) => sum + group.rows, 0) === totals.stored, 'the rows by kind and date do not add up');
  }

  /** What a check of the lake finds, and what is left over. */
  async function findUntidy(): Promise<string[]> {
    const { problems } = await checkLake(lakeDir);
    // Where the stream has lost messages, a file that no commit names may be all there is of them: it is put aside and told of.
    const unexplained = problems.filter(({ path: at }) => brokerLosses === 0 || !at.startsWith('orphans/'));
    const names = readdirSync(lakeDir, { recursive: true, encoding: 'utf8' });
    const left = names.filter((name) => name.endsWith('.tmp') || name.includes('pending-') || name.startsWith('staging/'));
    return [...unexplained.map((problem) => JSON.stringify(problem)), ...left.map((name) => `left over: ${name}`)];
  }

  return {
    look,
    findUntidy,
    afterCut() {
      last = { snapshot: durable, glob: new Set() };
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
      for (const message of payloads.map((payload) => ledger.find(payload))) {
        if (message === undefined) continue;
        const isKept = message.badIds.length === 0 && message.ids.every((id) => there.has(id));
        if (!isKept) message.isLost = true;
      }
    },
  };
}

async function readFailedLines(folder: string, tableDir: string): Promise<string[]> {
  const lines: string[] = [];
  for (const file of await listFailedFiles(folder, tableDir)) lines.push(...(await readFailedFile(file)).map(({ line }) => line));
  return lines;
}
