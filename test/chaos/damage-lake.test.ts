import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { createRandom } from '../../src/demo/random.ts';
import { runExport } from '../../src/export/worker/run-export.ts';
import type { WorkerPlan } from '../../src/export/jobs/worker-messages.ts';
import { checkLake } from '../../src/lake/check.ts';
import { readSnapshot } from '../../src/lake/log/snapshot.ts';
import { isAppError } from '../../src/runtime/errors.ts';
import { chaosFigure, chaosSeed } from '../helpers/chaos.ts';
import { recordDamage, runDamages, type Verdict } from '../helpers/damage.ts';
import { temporaryFolder } from '../helpers/folder.ts';
import { inTurn } from '../helpers/in-turn.ts';
import { eventLine, startTestCompact } from '../helpers/lake.ts';
import { createMemoryStream } from '../helpers/memory-stream.ts';
import { waitFor } from '../helpers/wait.ts';

/**
 * A small lake of sealed and young files, with several checkpoints. After each damage its users' queries run: the
 * newest snapshot, an export of everything by the export worker's code, `lake check`.
 */

const offsets = chaosFigure('TRIBUTARY_TEST_DAMAGES', { short: 1, long: 200 });
const seed = chaosSeed();
const folder = temporaryFolder();
const original = path.join(folder, 'original');
const tableOf = (data: string): string => path.join(data, 'lake', 'events');

const request: WorkerPlan['request'] = {
  event: 'customEvents',
  selectors: ['idApp', 'eventName', 'customUserId', 'tsEvent', 'params.name', 'params.value'],
  timezone: 'UTC',
  eventTime: {},
  availableAt: {},
  eventNameInvert: false,
  filters: {},
};
const limits: WorkerPlan['limits'] = {
  maxRows: 1e9,
  maxBytes: 1e9,
  singleFileMaxBytes: 1e9,
  partMaxBytes: 1e9,
  memoryMb: 512,
  threads: 1,
};
const apps: WorkerPlan['apps'] = [
  { idApp: 1, title: 'A', sdkKey: '1', platform: 'web', idAccount: 1, idProject: undefined },
];

/** Describes the newest snapshot, without its path. */
async function describeSnapshot(data: string): Promise<string> {
  const { version, files, txns, lake, schemaString } = await readSnapshot(tableOf(data));
  return JSON.stringify([
    version,
    files.map(({ path: name, sizeBytes, sha256, young, publishedPath }) => [
      name,
      sizeBytes,
      sha256,
      young,
      publishedPath,
    ]),
    files.map(({ numRecords, minValues, maxValues }) => [numRecords, minValues, maxValues]),
    [...txns],
    lake,
    schemaString,
  ]);
}

/** Exports everything; returns the hash of the CSV, or undefined if the export failed with an error. */
async function exportAll(data: string): Promise<string | undefined> {
  const to = path.join(data, 'export');
  mkdirSync(to);
  const outcome = await runExport(
    { request, apps, tableDir: tableOf(data), folder: to, stem: 'all', limits, retentionMs: 0, begunMs: 0 },
    () => undefined,
  );
  if (outcome.kind === 'failed') return undefined;
  return createHash('sha256')
    .update(readFileSync(path.join(to, outcome.files[0]?.name ?? '')))
    .digest('hex');
}

let rightSnapshot: string;
let rightExport: string | undefined;
let liveFiles: ReadonlySet<string>;

beforeAll(async () => {
  const stream = createMemoryStream();
  const publish = (n: number): number =>
    stream.publish(
      [1, 2, 3].map((part) =>
        eventLine({
          kind: 'custom_event',
          custom_event_name: `level_${n}`,
          custom_user_id: `u${part}`,
          custom_event_params: { level: String(n), text: 'a "quoted", text' },
        }),
      ),
    );
  const stored = async (): Promise<number> => (await readSnapshot(tableOf(original))).lake?.totals.stored ?? 0;
  for (const sealAgeMs of [10, 3_600_000]) {
    const compactor = await startTestCompact(original, stream, { sealAgeMs, checkpointEvery: 4 });
    for (let n = 0; n < 6; n += 1) {
      const before = await stored();
      publish(n);
      await waitFor('the events are stored', async () => (await stored()) === before + 3);
    }
    if (sealAgeMs === 10)
      await waitFor('all is sealed', async () =>
        (await readSnapshot(tableOf(original))).files.every((file) => !file.young),
      );
    await waitFor('the newest checkpoint is written', () => listLake(original, /checkpoint\.parquet$/).length > 1);
    await compactor.stop();
  }
  rightSnapshot = await describeSnapshot(original);
  liveFiles = new Set((await readSnapshot(tableOf(original))).files.map((file) => path.basename(file.path)));
  const copy = path.join(folder, 'whole');
  cpSync(original, copy, { recursive: true });
  rightExport = await exportAll(copy);
  rmSync(copy, { recursive: true });
}, 60_000);

test('An undamaged lake passes its check and can be exported', async () => {
  expect((await checkLake(path.join(original, 'lake'))).problems).toEqual([]);
  expect(rightExport).toBeDefined();
});

function listLake(data: string, pattern: RegExp): string[] {
  return readdirSync(path.join(data, 'lake'), { recursive: true, encoding: 'utf8' })
    .filter((name) => pattern.test(name))
    .map((name) => path.join(data, 'lake', name));
}

/**
 * Runs the queries that the file may affect: none may return a wrong result, and `lake check` must explain each error.
 */
async function judge(
  data: string,
  { log, needsExport }: { readonly log: boolean; readonly needsExport: boolean },
): Promise<Verdict> {
  const snapshot = log
    ? await describeSnapshot(data).catch((error: unknown) =>
        isAppError(error) ? 'refused' : Promise.reject(error as Error),
      )
    : rightSnapshot;
  if (snapshot !== 'refused' && snapshot !== rightSnapshot) return { silent: 'another snapshot' };
  const exported = needsExport ? await exportAll(data) : rightExport;
  if (exported !== undefined && exported !== rightExport) return { silent: 'another export' };
  const { ok } = await checkLake(path.join(data, 'lake'));
  if (snapshot === rightSnapshot && exported === rightExport) return ok ? 'right' : 'loud';
  return ok ? { silent: 'an error that lake check does not explain' } : 'loud';
}

/** One in this many damages of the log gets an export; the snapshot is compared each time. */
const exportEvery = 10;

const kinds: Readonly<
  Record<string, { readonly files: RegExp; /** Whether `lake check` must find each damage. */ readonly found: boolean }>
> = {
  'entries of the log': { files: /_delta_log\/\d+\.json$/, found: true },
  checkpoints: { files: /checkpoint\.parquet$/, found: true },
  'hashes of checkpoints, and the pointer to the last': {
    files: /(checkpoint\.sha256|_last_checkpoint)$/,
    found: false,
  },
  'sealed Parquet files': { files: /kind=.*\.parquet$/, found: true },
  'young Parquet files': { files: /_young\/.*\.parquet$/, found: true },
  'the empty Parquet file': { files: /_columns\.parquet$/, found: false },
};

test.for(inTurn(Object.entries(kinds), 4))(
  'Damaged %s lead to a right result or a reported error',
  { timeout: 3_600_000 },
  async ([what, { files, found }]) => {
    let cases = 0;
    const tally = await runDamages({
      original,
      copy: path.join(folder, 'copy'),
      // Only live data files: no reader opens the others before their removal.
      listFiles: (copy) =>
        listLake(copy, files).filter((file) => !file.includes('_young/') || liveFiles.has(path.basename(file))),
      random: createRandom(seed),
      offsets,
      async judge(copy, file) {
        const log = file.includes('_delta_log');
        cases += 1;
        const verdict = await judge(copy, { log, needsExport: !log || cases % exportEvery === 1 });
        return found && verdict === 'right' ? { silent: 'damage that lake check does not find' } : verdict;
      },
    });
    recordDamage(`damage to the lake: ${what}`, tally, { seed, part: 'damage-lake' });
    expect(tally.silentWrong).toEqual([]);
  },
);
