import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { waitUntilWorkedOff } from '../helpers/accounting.ts';
import { chaosSeed } from '../helpers/chaos.ts';
import { recordFinding } from '../helpers/chaos-report.ts';
import { testFolder } from '../helpers/folder.ts';
import { createLedger } from '../helpers/ledger.ts';
import { sendLoad } from '../helpers/load.ts';
import { startWithApp } from '../helpers/service-access.ts';
import { findSteps, happenedBetween, missingForTraces, readTrace, traceCommand, type Step } from '../helpers/trace.ts';
import { waitFor } from '../helpers/wait.ts';

const events = 20;
const seed = chaosSeed();
const blockFile = String.raw`</\S*/nats/store/\S*\.blk>`;

/** Returns one of the steps, which must exist. */
function stepAt(steps: readonly Step[], index: number, what: string): Step {
  const step = steps.at(index);
  if (step === undefined) throw new Error(`the trace does not show ${what}`);
  return step;
}

/**
 * Asserts the order for each event: its message was written, synced, acknowledged by the broker, then answered with a
 * 200.
 */
function assertAcknowledgedAfterSync(steps: readonly Step[]): void {
  const writes = findSteps(
    steps,
    new RegExp(String.raw`^pwrite64\(\d+${blockFile}.*tributary\.TRIBUTARY_EVENTS\.events\.[^{]*\{`),
  );
  const answers = findSteps(steps, /^writev?\(.*"HTTP\/1\.1 200 OK\\r\\n/);
  expect(writes.length).toBe(events);
  expect(answers.length).toBe(events);
  for (let n = 0; n < events; n += 1) {
    const write = stepAt(writes, n, `the write of message ${n + 1}`);
    const acknowledgement = stepAt(
      findSteps(steps, new RegExp(String.raw`^writev?\(.*MSG _INBOX.*\\"seq\\":${n + 1}\}`)),
      0,
      `the broker's acknowledgement of message ${n + 1}`,
    );
    expect(
      happenedBetween(steps, write, new RegExp(String.raw`^f(data)?sync\(\d+${blockFile}`), acknowledgement),
      `message ${n + 1} is synced between its write and its acknowledgement`,
    ).toBe(true);
    expect(stepAt(answers, n, `answer ${n + 1}`).begun).toBeGreaterThan(acknowledgement.begun);
  }
}

/**
 * Asserts the order of a flush: rows written and synced, their file name synced, commit synced, its link synced; only
 * then was the stream purged.
 */
function assertPurgedAfterCommit(steps: readonly Step[]): void {
  const purge = stepAt(findSteps(steps, /^writev?\(.*PUB \$JS\.API\.STREAM\.PURGE\./), 0, 'the purge of the stream');
  const rows = stepAt(
    findSteps(steps, /^p?write(64)?\(\d+<\/\S*\/events\/_young\/\S*\.parquet\.\S*\.tmp>/).filter(
      (step) => step.begun < purge.begun,
    ),
    -1,
    'the write of a young file',
  );
  const commit = stepAt(
    findSteps(steps, /^p?write(64)?\(\d+<\/\S*\/_delta_log\/\S*\.tmp>.*\\"operation\\":\\"FLUSH\\"/),
    0,
    'the write of the commit',
  );
  const link = stepAt(
    findSteps(steps, /^link(at)?\(.*_delta_log\/\d{20}\.json"/).filter((step) => step.begun < purge.begun),
    -1,
    'the link of the commit',
  );
  expect(
    happenedBetween(steps, rows, /^f(data)?sync\(\d+<\/\S*\/events\/_young\/\S*\.parquet\.\S*\.tmp>/, commit),
    'the rows are synced before the commit is written',
  ).toBe(true);
  expect(
    happenedBetween(steps, rows, /^f(data)?sync\(\d+<\/\S*\/events\/_young>/, commit),
    "the file's name is synced before the commit is written",
  ).toBe(true);
  expect(
    happenedBetween(steps, commit, /^f(data)?sync\(\d+<\/\S*\/_delta_log\/\S*\.tmp>/, link),
    'the commit is synced before it is linked',
  ).toBe(true);
  expect(
    happenedBetween(steps, link, /^f(data)?sync\(\d+<\/\S*\/_delta_log>/, purge),
    "the commit's name is synced before the stream is purged",
  ).toBe(true);
}

it(
  'The service syncs each message before its 200, and the rows and their commit before it purges the stream',
  { timeout: 120_000 },
  async (context) => {
    const missing = missingForTraces();
    if (missing !== undefined) context.skip(`the order of syncs is not looked at: ${missing}`);
    const folder = testFolder();
    const dataDir = path.join(folder, 'data');
    const trace = path.join(folder, 'trace');
    const { service, token } = await startWithApp({
      dataDir,
      settings: { TRIBUTARY_FLUSH_AGE_MS: '3000' },
      under: traceCommand(trace),
    });
    const supervisor = service.pid;
    const ledger = createLedger('traced');
    await sendLoad(ledger, events, {
      s2s: () => service.s2s,
      idApp: 1,
      token,
      random: createRandom(seed),
      clients: 1,
      batchShare: 0,
    });
    expect(ledger.totals().acknowledged).toBe(events);
    await waitUntilWorkedOff(service);
    await service.stop();
    await waitFor('the trace is written to its end', () =>
      new RegExp(`^${supervisor} .*exited with 0`, 'm').test(readFileSync(trace, 'utf8')),
    );

    const steps = readTrace(trace);
    assertAcknowledgedAfterSync(steps);
    assertPurgedAfterCommit(steps);
    recordFinding({
      promise: 'P2',
      what: 'the order of writes and syncs, by strace',
      wanted: 'each message synced before its acknowledgement; rows, commit and their names before the purge',
      figures: { acknowledgedEvents: events, systemCalls: steps.length, answersBeforeSync: 0 },
      reached: true,
      seed,
      again: 'make chaos PART=power-cut-order',
    });
  },
);
