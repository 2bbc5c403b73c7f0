import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ExportApp, ExportSpec } from '../../../../src/export/jobs/export-spec.ts';
import { fileFormats } from '../../../../src/datasets/file-formats.ts';
import { openQueryEngine } from '../../../../src/export/worker/query-engine.ts';
import { buildQuery, fileFilter } from '../../../../src/export/worker/query.ts';
import { pruneFiles } from '../../../../src/lake/files/prune.ts';
import { emptyFilePath, readSnapshot } from '../../../../src/lake/log/snapshot.ts';
import { literalOf, parseCsv } from '../../../helpers/export-oracle.ts';
import { testFolder } from '../../../helpers/folder.ts';
import { writeLake, type FixtureEvent } from '../../../helpers/lake-fixture.ts';

const apps: readonly ExportApp[] = [
  { idApp: 1, sdkKey: 'key', title: 'Game', platform: 'web', idAccount: 1, idProject: 1 },
];
const hostile = ["'", '"', '\\', '\n', '\r', ',', "','", '', ' ', '🎮', '\u2028', '[', 'null', '9223372036854775807'];
const text = fc
  .array(fc.oneof(fc.constantFrom(...hostile), fc.string({ maxLength: 4 })), { maxLength: 3 })
  .map((pieces) => pieces.join('').replaceAll('\0', ''));

function requestOf(selectors: readonly string[], timezone: string): ExportSpec {
  return {
    event: 'customEvents',
    selectors,
    timezone,
    eventTime: {},
    availableAt: {},
    eventNameInvert: false,
    filters: {},
  };
}

async function exportCells(events: readonly FixtureEvent[], requests: readonly ExportSpec[]): Promise<string[][][]> {
  const root = testFolder();
  const [table, folder] = [path.join(root, 'table'), path.join(root, 'attempt')];
  mkdirSync(folder);
  await writeLake(table, [events]);
  const { files } = await readSnapshot(table);
  const paths = [emptyFilePath(table), ...files.map(({ absolutePath }) => absolutePath)];
  const engine = await openQueryEngine({
    apps,
    inline: true,
    folders: [table, folder],
    tempDir: folder,
    tempMaxBytes: 1024 ** 3,
    memoryMb: 256,
    threads: 2,
  });
  const results: string[][][] = [];
  for (const [index, request] of requests.entries()) {
    const file = path.join(folder, `${index}.csv`);
    await engine.copyTo(buildQuery(request, apps).select, paths, file, fileFormats.csv.copyOptions);
    results.push(parseCsv(readFileSync(file, 'utf8')).slice(1));
  }
  engine.close();
  return results;
}

const eventOf = (index: number, event: Partial<FixtureEvent>): FixtureEvent => ({
  event_id: `event-${index}`,
  kind: 'custom_event',
  id_app: 1,
  event_time: 1_700_000_000,
  available_at: 1_700_000_000,
  ...event,
});

describe('the files of an export', () => {
  it('The day after a span is not read, even if its first event is at midnight', async () => {
    const table = path.join(testFolder(), 'table');
    const midnight = Date.UTC(2026, 0, 2) / 1000;
    const times = [midnight - 86_400, midnight - 0.001, midnight - 0.0001, midnight];
    await writeLake(
      table,
      times.map((seconds, index) => [eventOf(index, { event_time: seconds })]),
    );
    const { files } = await readSnapshot(table);
    const eventTime = { fromSeconds: midnight - 86_400, beforeSeconds: midnight };
    const read = pruneFiles(files, fileFilter({ ...requestOf(['eventId'], 'UTC'), eventTime }, apps));
    expect(read).toEqual(files.slice(0, 3));
  });
});

describe('the cells of an export', () => {
  it('Lists of any texts are array literals with all special characters escaped', async () => {
    const maps = fc.sample(fc.dictionary(text, text, { maxKeys: 4, noNullPrototype: true }), {
      numRuns: 1500,
      seed: 11,
    });
    const events = maps.map((params, index) => eventOf(index, { custom_event_params: params }));
    const selectors = ['eventId', 'params.name', 'params.value'];
    const [cells, ofNames] = await exportCells(events, [
      requestOf(selectors, 'UTC'),
      requestOf(['params.name'], 'UTC'),
    ]);
    const expected = maps.map((params, index) => [
      `event-${index}`,
      literalOf(Object.keys(params)),
      literalOf(Object.values(params)),
    ]);
    expect(cells).toEqual(expected);
    expect(ofNames).toEqual(expected.map(([, names]) => [names]));
  });

  it('The UTC date of an event equals the date by a zone lookup, to the microsecond around midnight', async () => {
    const day = 86_400;
    const times = [-3, -1, 0, 1, 10_957, 19_675, 19_782, 47_482].flatMap((date) =>
      [-1, -0.000_001, 0, 0.000_001, 43_200].map((seconds) => date * day + seconds),
    );
    const events = times.map((event_time, index) => eventOf(index, { event_time }));
    const [utc, byZone] = await exportCells(events, [
      requestOf(['eventId', 'dtEvent'], 'UTC'),
      requestOf(['eventId', 'dtEvent'], 'Etc/UTC'),
    ]);
    expect(utc).toHaveLength(times.length);
    expect(utc).toEqual(byZone);
  });
});
